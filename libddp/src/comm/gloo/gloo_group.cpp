#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>

#include "comm/gloo/algorithms.h"
#include "comm/gloo/make_group.h"
#include "comm/signature.h"
#include "comm/split_plan.h"

namespace ddp::comm {
namespace {

void execute(GlooCore& core, AsyncWork& work, LaneMemory& memory) {
  if (!work.begin()) return;
  const Collective& what = work.collective();
  try {
    const Exchange exchange(core, work, memory);
    if (core.config().check_collectives && !is_point_to_point(what.kind)) {
      const std::string label = what.options.label.empty() ? "" : concat(" (", what.options.label, ")");
      const std::string difference = compare_calls(exchange, concat(describe(what), label));
      if (!difference.empty()) {
        core.finish(work, {.timeout = false, .text = in_collective(what, core.rank(), core.size(), difference)});
        return;
      }
    }
    run_exchange(exchange);
    core.finish(work);
  } catch (const Interrupted&) {
    core.finish(
        work, {.timeout = false,
               .text = in_collective(what, core.rank(), core.size(), concat("ended because: ", core.death_reason()))});
  } catch (const TransportError& error) {
    // After a death the connections are closed from this side; what they say then is of no interest.
    if (core.dead()) {
      core.finish(work, {.timeout = false, .text = core.death_reason()});
    } else if (error.timeout) {
      core.finish(work, {.timeout = true, .text = in_collective(what, core.rank(), core.size(), error.text)});
    } else {
      core.finish(work, core.explain(what, error.text));
    }
  } catch (const std::exception& error) {
    core.finish(work, {.timeout = false, .text = in_collective(what, core.rank(), core.size(), error.what())});
  }
}

/// Executes its collectives in order of issue, on a thread of its own.
class Lane {
 public:
  explicit Lane(std::shared_ptr<GlooCore> core) : core_(std::move(core)) {
    thread_ = start_library_thread([this] { run(); });
  }
  ~Lane() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      condition_.notify_all();
    }
    thread_.join();
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void push(std::shared_ptr<AsyncWork> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    condition_.notify_one();
  }
  /// Free to take a message that must not wait behind others.
  bool idle() const {
    const std::lock_guard lock(mutex_);
    return queue_.empty() && !busy_;
  }

 private:
  void run() {
    LaneMemory memory;
    std::unique_lock lock(mutex_);
    while (true) {
      condition_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      execute(*core_, *work, memory);
      work.reset();
      lock.lock();
      busy_ = false;
    }
  }

  const std::shared_ptr<GlooCore> core_;
  mutable std::mutex mutex_;
  std::condition_variable condition_;
  std::deque<std::shared_ptr<AsyncWork>> queue_;
  bool stopping_ = false;
  bool busy_ = false;
  std::thread thread_;
};

class GlooGroup final : public ProcessGroup {
 public:
  explicit GlooGroup(const GlooConfig& config)
      : ProcessGroup(config.rank, config.size, config.device, config.timeout),
        watchdog_(Watchdog::instance()),
        core_(std::make_shared<GlooCore>(config)),
        exceptions_at_birth_(std::uncaught_exceptions()) {
    core_->set_watchdog(watchdog_);
    watchdog_->add(core_);
  }

  ~GlooGroup() override {
    if (std::uncaught_exceptions() > exceptions_at_birth_) {
      abort("destroyed while an exception is on its way");
    } else {
      core_->drain();
    }
    lanes_.clear();
    messengers_.clear();
    watchdog_->remove(core_.get());
  }

  void connect(std::shared_ptr<gloo::transport::Device> device) {
    core_->connect(std::move(device));
    ensure_lanes(1);
  }

  std::string backend() const override { return "gloo"; }
  int lanes() const override { return static_cast<int>(lanes_.size()); }
  void ensure_lanes(int count) override {
    DDP_CHECK(count >= 1 && count <= kMaxLanes, InvalidArgument, "ensure_lanes: ", count, " lanes; allowed are 1 to ",
              kMaxLanes);
    while (lanes() < count) lanes_.push_back(std::make_unique<Lane>(core_));
  }
  std::shared_ptr<Store> store() const override { return core_->config().store; }

  std::shared_ptr<ProcessGroup> split(int color, int key, std::source_location where) override {
    const std::uint64_t call = ++splits_;
    const SplitPlan plan = plan_split(*this, color, key, where);
    if (color < 0) return nullptr;
    GlooConfig config = core_->config();
    config.rank = plan.rank;
    config.size = static_cast<int>(plan.members.size());
    config.store = std::make_shared<PrefixStore>(concat("split/", call, "/", color, "/"), core_->config().store);
    auto group = std::make_shared<GlooGroup>(config);
    group->connect(core_->device());
    // Nobody goes on, and perhaps away with the store, before all members are connected.
    group->barrier({.label = "split"}, where);
    return group;
  }

  void abort(const std::string& reason) noexcept override {
    try {
      core_->die({.timeout = false, .text = concat("rank ", rank(), " aborted: ", reason)});
    } catch (const std::exception&) {
      // Out of memory for the text: nothing left to do here.
    }
  }

 protected:
  Work launch(Collective collective) override {
    const bool message = is_point_to_point(collective.kind);
    if (message) {
      auto& counters = collective.kind == CollectiveKind::send ? sent_ : received_;
      collective.sequence = ++counters[{collective.root, collective.tag}];
    }
    Lane& lane = message ? messenger() : *lanes_[static_cast<std::size_t>(collective.options.lane)];
    core_->note_call(collective);
    auto work = core_->issue(std::move(collective), *watchdog_);
    if (!work->is_completed()) lane.push(work);
    return Work(std::move(work));
  }

 private:
  static constexpr int kMaxLanes = 128;

  // Messages run beside the lanes and beside each other: one that waits for its peer holds up nothing else.
  Lane& messenger() {
    const auto free = std::ranges::find_if(messengers_, [](const auto& lane) { return lane->idle(); });
    if (free != messengers_.end()) return **free;
    messengers_.push_back(std::make_unique<Lane>(core_));
    return *messengers_.back();
  }

  const std::shared_ptr<Watchdog> watchdog_;
  const std::shared_ptr<GlooCore> core_;
  const int exceptions_at_birth_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::unique_ptr<Lane>> messengers_;
  std::map<std::pair<int, int>, std::uint64_t> sent_;  // by peer and tag
  std::map<std::pair<int, int>, std::uint64_t> received_;
  std::uint64_t splits_ = 0;
};

}  // namespace

std::shared_ptr<ProcessGroup> make_gloo_group(const GlooConfig& config, std::source_location where) {
  auto group = std::make_shared<GlooGroup>(config);
  group->connect(nullptr);
  group->barrier({.label = "init"}, where);
  return group;
}

}  // namespace ddp::comm
