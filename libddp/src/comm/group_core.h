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

/// What a CPU group shares with its works, threads and the watchdog: what is outstanding, and whether the
/// group is dead. Outlives the ProcessGroup as long as a work needs it.
class GroupCore : public Watched, public std::enable_shared_from_this<GroupCore> {
 public:
  GroupCore(int rank, int size, std::chrono::milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// A work for the collective, failed already when the group is dead.
  std::shared_ptr<AsyncWork> issue(Collective collective, Watchdog& watchdog);
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

 protected:
  /// "; not arrived: rank 2", as far as known. Must not block.
  virtual std::string missing(const AsyncWork& /*work*/) { return {}; }
  /// Called once, when the group has died: wake what is blocked, tell the peers. Must not block.
  virtual void on_death(const Failure& /*failure*/) {}
  /// Works outstanding for longer than `late_after`, whenever the watchdog looks. Must not block.
  virtual void on_late(const std::shared_ptr<AsyncWork>& /*work*/) {}

 private:
  void forget(const AsyncWork& work);

  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<AsyncWork>> outstanding_;
  std::optional<Failure> death_;
};

/// Puts "rank 1 of 4: all_reduce #3 (label) of 100 x float32: " before a text.
std::string in_collective(const Collective& collective, int rank, int size, const std::string& text);

}  // namespace ddp::comm
