#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "comm/group_core.h"
#include "comm/stream_work.h"

namespace ddp::comm {

class LocalHub;

/// One rank's side of an in-process group.
class LocalCore final : public GroupCore {
 public:
  LocalCore(std::shared_ptr<LocalHub> hub, int rank, int size, std::chrono::milliseconds timeout)
      : GroupCore(rank, size, timeout), hub_(std::move(hub)) {}

  /// Waits, a few seconds at most, until the device is done with the memory of works that failed.
  void let_go() noexcept;

 protected:
  std::chrono::milliseconds look_every() const override;
  void bury(std::vector<std::shared_ptr<AsyncWork>> works) override;
  std::string missing(const AsyncWork& work) override;
  void on_death(const Failure& failure) override;

 private:
  const std::shared_ptr<LocalHub> hub_;
  std::mutex buried_mutex_;
  std::vector<std::shared_ptr<AsyncWork>> buried_;
};

/// Where the ranks of an in-process group meet. The last rank to arrive carries the collective out, or puts it into a
/// stream when the ranks are on CUDA devices.
class LocalHub : public std::enable_shared_from_this<LocalHub> {
 public:
  LocalHub(std::vector<Device> devices, std::chrono::milliseconds timeout);

  int size() const { return static_cast<int>(devices_.size()); }
  bool on_device() const { return devices_.front().is_cuda(); }
  Device device(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  void attach(int rank, const std::shared_ptr<LocalCore>& core);
  void arrive(int rank, const std::shared_ptr<AsyncWork>& work);
  std::string missing(const AsyncWork& work);
  /// Every rank's core dies of it.
  void die(const Failure& failure);
  /// The hub of a subgroup: made by the first member that asks, kept while members hold it.
  std::shared_ptr<LocalHub> child(std::uint64_t call, int color, const std::vector<int>& members);

 private:
  struct Meeting {
    std::vector<std::shared_ptr<AsyncWork>> works;  // by rank
    int arrived = 0;
  };
  using MeetingKey = std::pair<int, std::uint64_t>;  // lane, sequence
  using PairKey = std::tuple<int, int, int>;         // from, to, tag
  struct Mailbox {
    std::vector<std::shared_ptr<AsyncWork>> sends;
    std::vector<std::shared_ptr<AsyncWork>> recvs;
  };

  void meet(int rank, const std::shared_ptr<AsyncWork>& work);
  void match_message(int rank, const std::shared_ptr<AsyncWork>& work);
  /// Ends the works, with a failure if there is one.
  void finish(const std::vector<std::shared_ptr<AsyncWork>>& works, const std::string& failure);
  void finish_on_device(const std::vector<std::shared_ptr<AsyncWork>>& works);
  StreamView stream_of(const Collective& collective);

  const std::vector<Device> devices_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<LocalCore>> cores_;
  std::map<MeetingKey, Meeting> meetings_;
  std::map<PairKey, Mailbox> mailboxes_;
  std::map<std::pair<std::uint64_t, int>, std::weak_ptr<LocalHub>> children_;
  std::map<int, Stream> streams_;  // by lane, on rank 0's device; messages have one too
};

/// Carries a collective out that all ranks have handed in; works are by rank. CPU memory only.
void run_local(const std::vector<std::shared_ptr<AsyncWork>>& works);
/// The same for StreamWorks: queues it on the stream, after each rank's own, and tells the works.
void run_on_device(const std::vector<std::shared_ptr<AsyncWork>>& works, StreamView stream);

}  // namespace ddp::comm
