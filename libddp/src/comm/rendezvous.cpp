#include "comm/rendezvous.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include "comm/store/store_checks.h"
#include "ddp/core/error.h"

namespace ddp::comm {
namespace {

constexpr std::string_view kGo = "go";

struct Identity {
  std::string host;
  long pid = 0;

  std::string record() const { return concat(pid, " ", host); }
  std::string shown() const { return concat("process ", pid, " on host ", host); }
  static Identity parse(const Bytes& record) {
    const std::string text(record.begin(), record.end());
    const auto blank = text.find(' ');
    Identity identity;
    identity.pid = std::atol(text.substr(0, blank).c_str());
    if (blank != std::string::npos) identity.host = text.substr(blank + 1);
    return identity;
  }
  friend bool operator==(const Identity&, const Identity&) = default;
};

class Attempt {
 public:
  Attempt(std::shared_ptr<Store> store, int rank, int size, std::chrono::milliseconds timeout,
          Clock::time_point deadline, std::source_location where)
      : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout), deadline_(deadline), where_(where) {}

  Meeting run() {
    generation_ = store_->add(count_key(), 1);
    if (generation_ > 1) refuse_double();
    // In this order: whoever refuses because of the record must find this process among those that are waited for.
    store_->add(key(generation_, "registered"), 1);
    store_->set_text(key(generation_, concat("rank/", rank_)), me_.record());
    check_size();
    if (store_->add(key(generation_, "arrived"), 1) == size_) announce(generation_, "ok");
    wait_for_go();

    Meeting meeting;
    for (int rank = 0; rank < size_; ++rank) {
      meeting.hosts.push_back(Identity::parse(store_->get(key(generation_, concat("rank/", rank)), remaining())).host);
    }
    meeting.store = std::make_shared<PrefixStore>(key(generation_, "group/"), store_);
    return meeting;
  }

 private:
  std::string count_key() const { return concat("rank/", rank_, "/generations"); }
  static std::string key(std::int64_t generation, std::string_view name) { return concat(generation, "/", name); }
  std::chrono::milliseconds remaining() const {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()),
                    std::chrono::milliseconds(1));
  }

  /// The first word stands. Returns it.
  std::string announce(std::int64_t generation, const std::string& text) {
    const Bytes standing = store_->set_if_absent(key(generation, kGo), to_bytes(text));
    return {standing.begin(), standing.end()};
  }

  // Tells those who wait, takes this process back out of the count, and throws.
  [[noreturn]] void refuse(std::int64_t generation, const std::string& reason) {
    const bool complete = announce(generation, reason) == "ok";
    try {
      store_->add(count_key(), -1);
    } catch (const CommError&) {
      // Rank 0 has heard the reason and gone with the store: nobody is counted there any more.
    }
    if (!complete && generation == generation_) leave_together();
    ddp::detail::fail<CommError>(reason,
                                 complete ? "; the group is complete without this process, which is refused" : "");
  }

  void refuse_double() {
    const std::string previous = key(generation_ - 1, concat("rank/", rank_));
    const Identity other =
        Identity::parse(store_->get(previous, std::min(remaining(), std::chrono::milliseconds(5000))));
    if (other == me_) return;  // meets again
    std::string reason = concat("rank ", rank_, " is registered twice at ", store_->describe(), ": by ", other.shown(),
                                " and by ", me_.shown());
    const bool gone = other.host == me_.host && ::kill(static_cast<pid_t>(other.pid), 0) != 0 && errno == ESRCH;
    if (gone) reason += concat(" (process ", other.pid, " is gone: the store may be left over from an earlier run)");
    refuse(generation_ - 1, reason);
  }

  void check_size() {
    const Bytes standing = store_->set_if_absent(key(generation_, "world"), to_bytes(concat(size_, " ", rank_)));
    const std::string text(standing.begin(), standing.end());
    const int their_size = std::atoi(text.c_str());
    if (their_size == size_) return;
    refuse(generation_, concat("the ranks differ in WORLD_SIZE: rank ", text.substr(text.find(' ') + 1), " has ",
                               their_size, ", rank ", rank_, " has ", size_));
  }

  void wait_for_go() {
    std::string word;
    try {
      word = store_->get_text(key(generation_, kGo), remaining(), where_);
    } catch (const TimeoutError&) {
      std::string missing;
      for (int rank = 0; rank < size_; ++rank) {
        if (store_->check(key(generation_, concat("rank/", rank)))) continue;
        missing += concat(missing.empty() ? "rank " : ", rank ", rank);
      }
      word = announce(generation_, concat("not all of ", size_, " ranks came to ", store_->describe(), " within ",
                                          timeout_.count(), " ms; missing: ", missing));
    }
    if (word == "ok") return;
    leave_together();
    const std::string text = concat("rank ", rank_, ": ", word);
    if (word.find("missing: ") != std::string::npos) throw TimeoutError(text);
    throw CommError(text);
  }

  // After an error: rank 0, whose process may serve the store, goes last, so that everybody can read the reason.
  void leave_together() {
    constexpr std::chrono::milliseconds kPause{10};
    constexpr std::chrono::seconds kPatience{3};
    const auto until = Clock::now() + kPatience;
    try {
      const std::int64_t came = store_->add(key(generation_, "registered"), 0);
      while (store_->add(key(generation_, "left"), rank_ == 0 ? 0 : 1) + 1 < came && rank_ == 0 &&
             Clock::now() < until) {
        std::this_thread::sleep_for(kPause);
      }
    } catch (const CommError&) {
      // Rank 0 was not waiting any longer. The reason is known here, and better than this.
    }
  }

  const std::shared_ptr<Store> store_;
  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point deadline_;
  const std::source_location where_;
  const Identity me_{.host = host_name(), .pid = static_cast<long>(::getpid())};
  std::int64_t generation_ = 0;
};

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

Meeting meet(const std::shared_ptr<Store>& store, int rank, int size, std::chrono::milliseconds timeout,
             Clock::time_point deadline, std::source_location where) {
  return Attempt(store, rank, size, timeout, deadline, where).run();
}

}  // namespace ddp::comm
