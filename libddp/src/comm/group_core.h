#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/async_work.h"
#include "comm/watchdog.h"

namespace ddp::comm {

/// What a group shares with its works, threads and the watchdog: what is outstanding, and whether the
/// group is dead. Outlives the ProcessGroup as long as a work needs it.
class GroupCore : public Watched, public std::enable_shared_from_this<GroupCore> {
 public:
  GroupCore(int rank, int size, std::chrono::milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// A work for the collective, failed already when the group is dead.
  std::shared_ptr<AsyncWork> issue(Collective collective, Watchdog& watchdog);
  /// The same for a work that the backend has made.
  void admit(const std::shared_ptr<AsyncWork>& work, Watchdog& watchdog);
  std::chrono::milliseconds timeout_of(const Collective& collective) const;
  /// The executor is done with the work and it succeeded.
  void finish(AsyncWork& work);
  /// The executor is done with the work and it failed: the group dies of it.
  void finish(AsyncWork& work, const Failure& failure);
  /// Past its deadline: the group dies of it.
  void expire(AsyncWork& work);
  /// Ends everything outstanding and later; the first call's reason is kept. Does not block.
  void die(const Failure& failure);

  bool dead() const;
  /// The reason of death; empty while alive.
  std::string death_reason() const;
  /// Waits until nothing is outstanding; what is late expires.
  void drain() noexcept;

  Clock::time_point poll(Clock::time_point now) noexcept override;
  /// Finishes what is over on a device, when much is outstanding: so that the memory of works that nobody waits for
  /// does not pile up between two looks of the watchdog.
  void settle_many();

 protected:
  /// What has been outstanding for longest, or null.
  std::shared_ptr<AsyncWork> oldest() const;
  /// How often the watchdog looks while something is outstanding, besides deadlines; zero: only at them.
  virtual std::chrono::milliseconds look_every() const { return std::chrono::milliseconds(0); }
  /// Called at each look while alive: a failure that the backend has found out about.
  virtual std::optional<Failure> found_failure() { return {}; }
  /// Gets the works that were outstanding at death, when a device may still touch their memory.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep them
  virtual void bury(std::vector<std::shared_ptr<AsyncWork>> /*works*/) {}
  /// "; not arrived: rank 2", as far as known. Must not block.
  virtual std::string missing(const AsyncWork& /*work*/) { return {}; }
  /// Called once, when the group has died: wake what is blocked, tell the peers. Must not block.
  virtual void on_death(const Failure& /*failure*/) {}
  /// Works outstanding for longer than `late_after`, whenever the watchdog looks. Must not block.
  virtual void on_late(const std::shared_ptr<AsyncWork>& /*work*/) {}

 private:
  void forget(const AsyncWork& work);
  void settle_outstanding();

  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<AsyncWork>> outstanding_;
  std::optional<Failure> death_;
  // Whether the watchdog must be woken for the next work. It looks on for a while after the last one, so that a group
  // at work does not wake it each time.
  bool unwatched_ = true;
  bool idle_ = false;  // nothing was outstanding at the last look
};

/// Puts "rank 1 of 4: all_reduce #3 (label) of 100 x float32: " before a text.
std::string in_collective(const Collective& collective, int rank, int size, const std::string& text);

}  // namespace ddp::comm
