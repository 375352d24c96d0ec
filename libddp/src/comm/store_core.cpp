#include "comm/store_core.h"

#include <algorithm>

namespace ddp::comm {
namespace {

constexpr std::chrono::milliseconds kLongestPause{4000};
// After a failure, for the peers to read the reason before this process and the store in it may end.
constexpr std::chrono::milliseconds kLinger{1000};

}  // namespace

std::string list_of_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += concat(text.empty() ? "rank " : ", rank ", rank);
  return text;
}

StoreCore::StoreCore(int rank, int size, std::chrono::milliseconds timeout, std::shared_ptr<Store> store,
                     bool serves_store)
    : GroupCore(rank, size, timeout), store_(std::move(store)), serves_store_(serves_store) {}

void StoreCore::note_call(const Collective& collective) {
  if (is_point_to_point(collective.kind)) return;
  const std::lock_guard lock(call_mutex_);
  calls_[collective.options.lane][collective.sequence % kRemembered] = {.sequence = collective.sequence,
                                                                        .outline = outline(collective)};
}

std::string StoreCore::first_error() {
  try {
    if (store_->check("error")) return store_->get_text("error", std::chrono::seconds(1));
  } catch (const Error&) {
    // The store may have gone with the peer.
  }
  return {};
}

std::string StoreCore::late_key(const Collective& collective) const {
  if (!is_point_to_point(collective.kind)) {
    return concat("late/", collective.options.lane, "/", collective.sequence, "/");
  }
  const bool sending = collective.kind == CollectiveKind::send;
  return concat("late/message/", sending ? rank() : collective.root, "-", sending ? collective.root : rank(), "/",
                collective.tag, "/", collective.sequence, "/");
}

std::vector<int> StoreCore::partners(const Collective& collective) const {
  if (is_point_to_point(collective.kind)) return {collective.root};
  std::vector<int> peers;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) peers.push_back(peer);
  }
  return peers;
}

std::string StoreCore::missing(const AsyncWork& work) {
  const std::lock_guard lock(late_mutex_);
  const auto found = late_.find(late_key(work.collective()));
  if (found == late_.end() || !found->second.published) return {};
  std::vector<int> absent;
  for (const int peer : partners(work.collective())) {
    if (!found->second.arrived.contains(peer)) absent.push_back(peer);
  }
  return absent.empty() ? "; all ranks have arrived, the data has not"
                        : concat("; not arrived: ", list_of_ranks(absent));
}

void StoreCore::on_late(const std::shared_ptr<AsyncWork>& work) {
  const auto watchdog = watchdog_.lock();
  if (!watchdog) return;
  const auto now = Clock::now();
  const std::lock_guard lock(late_mutex_);
  // What has ended since leaves no entry behind.
  for (auto it = late_.begin(); it != late_.end();) {
    const auto other = it->second.work.lock();
    if (it->second.talking || (other && !other->is_completed())) {
      ++it;
      continue;
    }
    watchdog->talk([self = shared_from_this(), this, key = concat(it->first, rank())] {
      try {
        store().erase(key);
      } catch (const Error&) {
        // Without a store there is nothing to tidy up.
      }
    });
    it = late_.erase(it);
  }
  Late& late = late_[late_key(work->collective())];
  if (late.talking || now < late.next_talk) return;
  late.work = work;
  late.talking = true;
  watchdog->talk([self = shared_from_this(), this, work] { talk_about(work); });
}

void StoreCore::publish_late(const Collective& collective) {
  store().set_text(concat(late_key(collective), rank()), describe(collective));
  if (is_point_to_point(collective.kind)) return;
  Calls calls;
  {
    const std::lock_guard lock(call_mutex_);
    const auto found = calls_.find(collective.options.lane);
    if (found == calls_.end()) return;
    calls = found->second;
  }
  for (const Call& call : calls) {
    if (call.sequence == 0 || call.sequence >= collective.sequence) continue;
    store().set_text(concat("late/", collective.options.lane, "/", call.sequence, "/", rank()), describe(call.outline));
  }
}

void StoreCore::talk_about(const std::shared_ptr<AsyncWork>& work) {
  const std::string key = late_key(work->collective());
  const std::string mine = describe(work->collective());
  std::set<int> arrived;
  std::string difference;
  std::string error;
  bool published = false;
  try {
    if (!work->is_completed()) {
      publish_late(work->collective());
      published = true;
      for (const int peer : partners(work->collective())) {
        const std::string peer_key = concat(key, peer);
        if (!store().check(peer_key)) continue;
        arrived.insert(peer);
        const std::string theirs = store().get_text(peer_key, std::chrono::seconds(1));
        if (theirs != mine && difference.empty()) {
          difference = concat("the ranks differ: rank ", peer, " called ", theirs, ", rank ", rank(), " called ", mine);
        }
      }
      if (difference.empty()) error = first_error();
    }
  } catch (const Error&) {
    // The deadline holds without the store; only the names of missing ranks are lost.
  }
  {
    const std::lock_guard lock(late_mutex_);
    Late& late = late_[key];
    late.talking = false;
    late.published = late.published || published;
    late.arrived.merge(arrived);
    late.next_talk = Clock::now() + late.pause;
    late.pause = std::min(late.pause * 2, kLongestPause);
  }
  if (difference.empty() && !error.empty()) difference = concat("the group has failed; first error: ", error);
  if (!difference.empty()) {
    const Failure failure{.timeout = false, .text = in_collective(work->collective(), rank(), size(), difference)};
    work->fail(failure);
    die(failure);
  }
}

bool StoreCore::talk(std::function<void()> task) {
  const auto watchdog = watchdog_.lock();
  if (watchdog) watchdog->talk(std::move(task));
  return watchdog != nullptr;
}

StoreCore::Loss StoreCore::ask_around() {
  constexpr std::chrono::milliseconds kPatience{1000};
  constexpr std::chrono::milliseconds kPause{50};
  Loss loss;
  loss.work = oldest();
  const auto until = Clock::now() + kPatience;
  try {
    if (loss.work) publish_late(loss.work->collective());
    while (true) {
      loss.first_error = first_error();
      loss.silent.clear();
      if (loss.work) {
        const std::string key = late_key(loss.work->collective());
        for (const int peer : partners(loss.work->collective())) {
          if (!store().check(concat(key, peer))) loss.silent.push_back(peer);
        }
      }
      if (!loss.first_error.empty() || Clock::now() >= until) break;
      if (loss.work && loss.silent.empty()) break;
      std::this_thread::sleep_for(kPause);
    }
  } catch (const Error&) {
    loss.silent.clear();  // the store has gone with a peer: nothing is known of the others
  }
  return loss;
}

void StoreCore::publish_death(const std::string& text) {
  try {
    const Bytes bytes(text.begin(), text.end());
    store().set_if_absent("error", bytes);
  } catch (const Error&) {
    // The peers then only see the connection go.
  }
  disconnect();
  try {
    std::int64_t told = store().add("error/told", 1);
    const auto until = Clock::now() + kLinger;
    while (serves_store_ && told < size() && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      told = store().add("error/told", 0);
    }
  } catch (const Error&) {
    // Nobody can ask any more.
  }
}

void StoreCore::on_death(const Failure& failure) {
  if (const auto watchdog = watchdog_.lock()) {
    watchdog->talk([self = shared_from_this(), this, text = failure.text] { publish_death(text); });
  } else {
    // The caller has woken up and dropped the group already; this thread is one that the watchdog waits for.
    publish_death(failure.text);
  }
}

}  // namespace ddp::comm
