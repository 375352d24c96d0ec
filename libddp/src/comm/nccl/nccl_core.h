#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/enqueue.h"
#include "comm/nccl/make_group.h"
#include "comm/store_core.h"
#include "comm/stream_work.h"

namespace ddp::comm {

/// A communicator with the stream that its collectives run on.
struct NcclLane {
  explicit NcclLane(Device device) : stream(device, StreamPriority::high), ready(device) {}
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  /// Held by whoever is inside a call on the communicator. It becomes null, with this and NcclCore's own mutex held,
  /// before it is freed.
  std::timed_mutex mutex;
  ncclComm_t comm = nullptr;
  bool blocking = true;
  Stream stream;
  Event ready;  ///< the caller's stream, at each collective anew
  std::shared_ptr<void> scratch;
};

/// A NCCL group's communicators, and what becomes of them when something fails.
///
/// The root communicator is non-blocking: it is made, and others are split off it, under a deadline. No collective
/// runs on it. The lanes are blocking ones: NCCL starts a thread for each call on a non-blocking communicator, which
/// costs more than the call. A call on a lane may still block, when NCCL first connects ranks for an algorithm and a
/// peer is gone: the abort then frees it, from another thread (see abort_communicators).
class NcclCore final : public StoreCore {
 public:
  explicit NcclCore(const NcclConfig& config);
  ~NcclCore() override;

  const NcclConfig& config() const { return config_; }
  Device device() const { return config_.device; }

  /// Meets the other ranks and makes the root communicator. Blocks the host.
  void connect();
  int lanes() const { return static_cast<int>(lanes_.size()); }
  NcclLane& lane(int index) { return *lanes_[static_cast<std::size_t>(index)]; }
  /// Splits one more lane off, and runs a collective on it. Collective over the group. Blocks the host.
  void add_lane();
  /// Puts the work's collective into the lane's stream, after what the caller's current stream has so far.
  void enqueue_on(NcclLane& lane, StreamWork& work);
  /// A communicator of this rank and one peer, for messages; null when the group has died. Blocks the host.
  std::shared_ptr<NcclLane> connect_pair(const std::string& key, int pair_rank);
  /// The same for a message, after the work's own ready event.
  void enqueue_message(NcclLane& lane, int pair_rank, StreamWork& work);

  /// Makes the group's device the current one of a thread of the library, for good: to go back to another device would
  /// start a context there.
  void adopt_thread();
  Clock::time_point poll(Clock::time_point now) noexcept override;
  /// See ProcessGroup::failure_word.
  const std::uint64_t* failure_word() const { return failure_word_.load(); }

  /// Ends the communicators: orderly within a deadline, or the abort's end is waited for. Never throws.
  void close() noexcept;

 protected:
  std::chrono::milliseconds look_every() const override { return std::chrono::milliseconds(50); }
  std::optional<Failure> found_failure() override;
  void bury(std::vector<std::shared_ptr<AsyncWork>> works) override;
  void on_death(const Failure& failure) override;
  void disconnect() noexcept override;

 private:
  std::vector<std::string> meet(Clock::time_point deadline);
  void judge(const std::vector<std::string>& records);
  void await(ncclComm_t comm, std::string_view what, const std::string& progress_key, Clock::time_point deadline);
  void warm(NcclLane& lane, const std::string& progress_key, Clock::time_point deadline);
  Bytes get_while_alive(const std::string& key, Clock::time_point deadline);
  std::string absent_ranks(const std::string& key);
  ncclResult_t finish_in_progress(ncclComm_t comm);
  /// Without `ready`: after the caller's current stream.
  void run(NcclLane& lane, const Event* ready, std::optional<int> pair_rank, StreamWork& work);
  bool take(NcclLane& lane, std::chrono::milliseconds patience);
  std::vector<std::shared_ptr<NcclLane>> all_lanes();
  void close_communicators();
  void abort_communicators();
  void explain_loss(const std::string& text);

  const NcclConfig config_;
  bool average_by_division_ = false;
  std::atomic<std::uint64_t*> failure_word_{nullptr};  // null while connecting, and alone
  std::shared_ptr<NcclLane> root_;
  std::vector<std::shared_ptr<NcclLane>> lanes_;

  std::mutex end_mutex_;
  std::condition_variable end_condition_;
  std::vector<std::shared_ptr<NcclLane>> pairs_;
  std::vector<std::shared_ptr<AsyncWork>> buried_;
  bool dying_ = false;      // from now on the aborter alone frees communicators
  bool published_ = false;  // the reason of death stands in the store
  bool closed_ = false;
  bool aborted_ = false;
  std::thread closer_;
  std::thread aborter_;
  std::atomic<bool> asking_{false};
};

}  // namespace ddp::comm
