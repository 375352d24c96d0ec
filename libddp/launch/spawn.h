#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/core/error.h"

/// Starts the ranks of one machine and sees them to their end.
namespace ddp::launch {

/// Highest number of ranks that can be started on one machine.
inline constexpr int kMaxRanks = 1024;

/// The program is missing or cannot be run. Exit code as a shell's: 127 or 126.
class CannotStart : public IoError {
 public:
  CannotStart(const std::string& text, int exit_code) : IoError(text), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

enum class OutputStream { standard, error };

using Environment = std::map<std::string, std::string>;

struct SpawnOptions {
  /// Ranks, in [1, kMaxRanks].
  int nproc = 1;
  /// The program, looked up in PATH when its name has no slash, and its arguments.
  std::vector<std::string> command;
  /// Where the store listens, as the ranks' MASTER_ADDR. Blanks around it are dropped.
  std::string master_addr = "127.0.0.1";
  /// In [0, 65535]; 0 takes a free one.
  int master_port = 0;
  /// Gives every rank its own share of the cores, unless there are more ranks than cores.
  bool bind = true;
  /// Lets more ranks than there are GPUs share them: sets what NCCL needs (variables that are set already stay), and
  /// starts CUDA MPS for the time of the run if none runs. Throws InvalidArgument without a GPU.
  bool share_gpu = false;
  /// Forwards SIGINT, SIGTERM and SIGHUP of this process to the ranks. These are blocked in the calling
  /// thread meanwhile, so no other thread of the process may have them unblocked.
  bool forward_signals = false;
  /// Ends the other ranks when one fails. When false they are left to end by themselves.
  bool end_others = true;
  /// After the first failure: how long the others may fail by themselves, so that they can say why.
  std::chrono::milliseconds settle{500};
  /// Between SIGTERM and SIGKILL.
  std::chrono::milliseconds grace{8000};
  /// Kills everything when the run takes longer; 0: no limit.
  std::chrono::milliseconds time_limit{0};
  /// Called for every line of a rank, in the calling thread. Null: lines go to this process's streams with
  /// "[rank R] " before them.
  std::function<void(int rank, OutputStream stream, std::string_view line)> on_line;
  /// Called for the launcher's own lines. Null: to standard error with "ddp run: " before them.
  std::function<void(std::string_view line)> on_note;
  /// Last word on the environment of a rank.
  std::function<void(int rank, Environment& environment)> adjust_environment;
};

/// How one rank ended.
struct RankResult {
  int rank = 0;
  pid_t pid = 0;
  /// The rank's own, or 128 + signal.
  int exit_code = 0;
  /// What killed it, or 0.
  int signal = 0;
  /// Signal that the launcher had sent it before it ended (SIGTERM, SIGKILL, ...), or 0.
  int ended_by_launcher = 0;
  /// Seconds from the start of the run to its end.
  double seconds = 0;
  /// Its newest lines of standard error.
  std::vector<std::string> last_errors;

  /// Ended badly by itself.
  bool failed() const { return exit_code != 0 && ended_by_launcher == 0; }
};

struct RunResult {
  /// 0; the first failure's; 128 + signal when a signal stopped the run; 124 after the time limit.
  int exit_code = 0;
  /// The rank that failed first, if one did.
  std::optional<int> first_failure;
  /// The signal that stopped the run, or 0.
  int stopped_by = 0;
  bool timed_out = false;
  std::vector<RankResult> ranks;
  /// Lines that tell what went wrong, the first failure first. Empty when nothing did.
  std::string summary;
};

/// Starts `nproc` ranks with torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// MASTER_ADDR, MASTER_PORT), DDP_RUN_ID, and DDP_STORE_EXTERNAL=1, since this process keeps the store; waits for their
/// end. Blocks the calling thread, which must live until then: the ranks die with it.
///
/// Every rank leads a process group of its own, which is killed when the rank has ended or this process dies. Standard
/// input of the ranks is empty. Throws InvalidArgument, CannotStart, CommError (port in use) or IoError; no
/// process is left then either.
RunResult spawn(const SpawnOptions& options);

}  // namespace ddp::launch
