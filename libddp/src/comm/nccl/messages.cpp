#include "comm/nccl/messages.h"

#include <algorithm>
#include <deque>

namespace ddp::comm {
namespace {

// A store call each: the first ones soon, for the peer may be just about to call.
constexpr std::chrono::microseconds kFirstPause{200};
constexpr std::chrono::microseconds kLongestPause{10'000};

}  // namespace

/// One direction between this rank and a peer.
class Messages::Channel {
 public:
  Channel(std::shared_ptr<NcclCore> core, int peer, bool sends)
      : core_(std::move(core)),
        sends_(sends),
        key_(concat("message/", sends ? core_->rank() : peer, "-", sends ? peer : core_->rank(), "/")) {
    thread_ = start_library_thread([this] { run(); });
  }
  ~Channel() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      condition_.notify_all();
    }
    thread_.join();
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void post(std::shared_ptr<StreamWork> work) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
    condition_.notify_all();
  }

 private:
  struct Want {
    std::uint64_t number;
    int tag;
    std::string what;
  };

  void run() {
    try {
      core_->adopt_thread();
    } catch (const Error&) {
      // The first message says it again.
    }
    std::unique_lock lock(mutex_);
    while (true) {
      condition_.wait(lock, [this] { return stopping_ || !posted_.empty() || !pending_.empty(); });
      if (stopping_) return;
      std::vector<std::shared_ptr<StreamWork>> fresh;
      fresh.swap(posted_);
      lock.unlock();
      const bool moved = step(fresh);
      lock.lock();
      if (moved) {
        pause_ = kFirstPause;
      } else if (!pending_.empty()) {
        condition_.wait_for(lock, pause_, [this] { return stopping_ || !posted_.empty(); });
        pause_ = std::min(pause_ * 2, kLongestPause);
      }
    }
  }

  /// True when a message went on its way.
  bool step(const std::vector<std::shared_ptr<StreamWork>>& fresh) {
    try {
      // All are pending before a store call can fail: who fails then is the first of them.
      for (const auto& work : fresh) pending_.push_back({.number = sends_ ? 0 : ++wanted_, .work = work});
      for (std::size_t i = pending_.size() - fresh.size(); !sends_ && i < pending_.size(); ++i) {
        const Collective& what = pending_[i].work->collective();
        core_->store().set_text(concat(key_, "want/", pending_[i].number), concat(what.tag, " ", describe(what)));
      }
      // Those that failed meanwhile: the group is dead then, and none of the others goes on its way either.
      std::erase_if(pending_, [](const Pending& entry) { return entry.work->is_completed(); });
      if (pending_.empty()) return false;
      return sends_ ? send_next() : receive_next();
    } catch (const std::exception& error) {
      fail(*pending_.front().work, error.what());
      pending_.clear();
      return false;
    }
  }

  bool send_next() {
    while (core_->store().check(concat(key_, "want/", wants_read_ + 1))) {
      const std::string key = concat(key_, "want/", ++wants_read_);
      const std::string text = core_->store().get_text(key, std::chrono::seconds(1));
      core_->store().erase(key);
      const auto blank = text.find(' ');
      wants_.push_back(
          {.number = wants_read_, .tag = std::stoi(text.substr(0, blank)), .what = text.substr(blank + 1)});
    }
    for (auto want = wants_.begin(); want != wants_.end(); ++want) {
      const auto found = std::ranges::find_if(
          pending_, [&](const Pending& entry) { return entry.work->collective().tag == want->tag; });
      if (found == pending_.end()) continue;
      const Want matched = *want;
      const auto work = found->work;
      wants_.erase(want);
      const std::string mine = describe(work->collective());
      core_->store().set_text(concat(key_, "go/", ++gone_), concat(matched.number, " ", mine));
      if (agree(*work, mine, matched.what, core_->rank(), work->collective().root)) move(*work);
      pending_.erase(std::ranges::find(pending_, work, &Pending::work));
      return true;
    }
    return false;
  }

  bool receive_next() {
    const std::string key = concat(key_, "go/", gone_ + 1);
    if (!core_->store().check(key)) return false;
    ++gone_;
    const std::string text = core_->store().get_text(key, std::chrono::seconds(1));
    core_->store().erase(key);
    const auto blank = text.find(' ');
    const std::uint64_t number = std::stoull(text.substr(0, blank));
    const auto found = std::ranges::find(pending_, number, &Pending::number);
    if (found == pending_.end()) return false;
    const auto work = found->work;
    if (agree(*work, text.substr(blank + 1), describe(work->collective()), work->collective().root, core_->rank())) {
      move(*work);
    }
    pending_.erase(std::ranges::find(pending_, work, &Pending::work));
    return true;
  }

  bool agree(StreamWork& work, const std::string& sent, const std::string& wanted, int from, int to) {
    if (sent == wanted) return true;
    fail(work, concat("the ranks differ: rank ", from, " sent a ", sent, ", rank ", to, " expected a ", wanted));
    return false;
  }

  void move(StreamWork& work) {
    if (!lane_) lane_ = core_->connect_pair(key_, sends_ ? 0 : 1);
    core_->enqueue_message(*lane_, sends_ ? 0 : 1, work);
  }

  void fail(StreamWork& work, const std::string& text) {
    core_->finish(work,
                  {.timeout = false, .text = in_collective(work.collective(), core_->rank(), core_->size(), text)});
  }

  struct Pending {
    std::uint64_t number;  // of a receive
    std::shared_ptr<StreamWork> work;
  };

  const std::shared_ptr<NcclCore> core_;
  const bool sends_;
  const std::string key_;

  std::mutex mutex_;
  std::condition_variable condition_;
  std::vector<std::shared_ptr<StreamWork>> posted_;
  bool stopping_ = false;

  // Of the thread alone.
  std::deque<Pending> pending_;
  std::deque<Want> wants_;
  std::uint64_t wanted_ = 0;
  std::uint64_t wants_read_ = 0;
  std::uint64_t gone_ = 0;
  std::chrono::microseconds pause_ = kFirstPause;
  std::shared_ptr<NcclLane> lane_;
  std::thread thread_;
};

Messages::Messages(std::shared_ptr<NcclCore> core) : core_(std::move(core)) {}
Messages::~Messages() = default;

void Messages::post(std::shared_ptr<StreamWork> work) {
  const bool sends = work->collective().kind == CollectiveKind::send;
  auto& channel = channels_[{work->collective().root, sends}];
  if (!channel) channel = std::make_unique<Channel>(core_, work->collective().root, sends);
  channel->post(std::move(work));
}

}  // namespace ddp::comm
