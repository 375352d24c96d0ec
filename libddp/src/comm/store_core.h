#pragma once

#include <array>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "comm/group_core.h"
#include "comm/signature.h"

namespace ddp::comm {

/// A group whose ranks can ask each other over a store when something is wrong.
///
/// The first error of the group is published under "error". A collective that is late is published under
/// "late/<key>/<rank>", and so are the last ones that this rank has called before it on the lane: a peer that is stuck
/// in one of them sees what was called instead. Reading the peers' entries tells which ranks are not there.
class StoreCore : public GroupCore {
 public:
  StoreCore(int rank, int size, std::chrono::milliseconds timeout, std::shared_ptr<Store> store, bool serves_store);

  Store& store() { return *store_; }
  const std::shared_ptr<Store>& shared_store() const { return store_; }
  /// For the watchdog's talking thread; must not own the watchdog.
  void set_watchdog(const std::shared_ptr<Watchdog>& watchdog) { watchdog_ = watchdog; }
  /// Remembers what was called; from the thread that issues.
  void note_call(const Collective& collective);
  /// The first error of the group, if the store has one; empty otherwise, or when the store is gone. Blocks.
  std::string first_error();

 protected:
  std::string missing(const AsyncWork& work) override;
  void on_death(const Failure& failure) override;
  void on_late(const std::shared_ptr<AsyncWork>& work) override;
  /// Runs it on the watchdog's talking thread; false when there is none.
  bool talk(std::function<void()> task);
  struct Loss {
    std::shared_ptr<AsyncWork> work;  ///< what is outstanding for longest; null: nothing
    std::string first_error;
    std::vector<int> silent;  ///< ranks that neither are in that collective nor have said why not
  };
  /// For the talking thread, when the transport has failed: what the others say, within a second.
  Loss ask_around();
  /// Called on the talking thread once the reason of death is published: peers may now notice.
  virtual void disconnect() noexcept {}

 private:
  struct Late {
    std::weak_ptr<AsyncWork> work;
    bool published = false;
    bool talking = false;
    std::set<int> arrived;
    Clock::time_point next_talk{};
    std::chrono::milliseconds pause{250};
  };
  struct Call {
    std::uint64_t sequence = 0;
    Outline outline;
  };
  // Per lane, the last calls in turn.
  static constexpr std::size_t kRemembered = 8;
  using Calls = std::array<Call, kRemembered>;

  std::string late_key(const Collective& collective) const;
  std::vector<int> partners(const Collective& collective) const;
  void publish_late(const Collective& collective);
  void talk_about(const std::shared_ptr<AsyncWork>& work);
  void publish_death(const std::string& text);

  const std::shared_ptr<Store> store_;
  const bool serves_store_;
  std::weak_ptr<Watchdog> watchdog_;

  std::mutex late_mutex_;
  std::map<std::string, Late> late_;
  std::mutex call_mutex_;
  std::map<int, Calls> calls_;
};

/// "rank 1, rank 2".
std::string list_of_ranks(const std::vector<int>& ranks);

}  // namespace ddp::comm
