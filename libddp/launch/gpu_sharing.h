#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/guardian.h"

/// Several ranks on one GPU.
///
/// NCCL refuses two ranks of one host on one device; it knows hosts by a hash, which NCCL_HOSTID replaces. So every
/// rank gets a host of its own and the ranks talk over loopback sockets. Processes on one GPU take turns in time
/// slices unless the CUDA Multi-Process Service (MPS) runs.
namespace ddp::launch {

/// A control daemon of the Multi-Process Service for the time of a run.
class MpsDaemon {
 public:
  /// Nothing where the program `nvidia-cuda-mps-control` is not found; `why_not` then says so. A daemon that is there
  /// already (its folder is CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps) is used and left alone. Throws IoError
  /// when one cannot be started.
  static std::unique_ptr<MpsDaemon> start(std::string& why_not);
  /// Stops the daemon that `start` started and removes its folder. Never throws.
  ~MpsDaemon();
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  bool started_here() const { return !folder_.empty(); }
  /// Variables that the ranks need to find it.
  std::map<std::string, std::string> environment() const;

 private:
  MpsDaemon() = default;
  std::string program_;
  std::string folder_;  // ours; empty for somebody else's daemon
  pid_t pid_ = 0;
  std::unique_ptr<Guardian> guardian_;  // kills the daemon when this process is killed
};

/// What ranks that share GPUs are given.
struct GpuSharing {
  std::unique_ptr<MpsDaemon> mps;
  std::string text;  ///< says what was done
  /// Variables of a rank that the user has not set himself are added.
  void add_to(std::map<std::string, std::string>& environment, int rank) const;
};

/// For `ranks` ranks on `gpus` GPUs. Nothing when each has its own. Throws InvalidArgument without a GPU.
std::optional<GpuSharing> share_gpus(int ranks, int gpus);

}  // namespace ddp::launch
