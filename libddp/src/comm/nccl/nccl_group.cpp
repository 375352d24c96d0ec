#include <algorithm>
#include <exception>
#include <map>

#include "comm/nccl/messages.h"
#include "comm/nccl/nccl_core.h"
#include "comm/split_plan.h"
#include "core/device_runtime.h"
#include "core/observer.h"

namespace ddp::comm {
namespace {

class NcclGroup final : public ProcessGroup {
 public:
  explicit NcclGroup(const NcclConfig& config)
      : ProcessGroup(config.rank, config.size, config.device, config.timeout),
        watchdog_(Watchdog::instance()),
        core_(std::make_shared<NcclCore>(config)),
        exceptions_at_birth_(std::uncaught_exceptions()) {
    core_->set_watchdog(watchdog_);
    watchdog_->add(core_);
  }

  ~NcclGroup() override {
    if (std::uncaught_exceptions() > exceptions_at_birth_) {
      abort("destroyed while an exception is on its way");
    } else {
      core_->drain();
    }
    messages_.reset();
    core_->close();
    watchdog_->remove(core_.get());
  }

  void connect() {
    if (size() > 1) core_->connect();
    ensure_lanes(1);
  }

  std::string backend() const override { return "nccl"; }
  int lanes() const override { return lanes_; }
  void ensure_lanes(int count) override {
    DDP_CHECK(count >= 1 && count <= kMaxLanes, InvalidArgument, "ensure_lanes: ", count, " lanes; allowed are 1 to ",
              kMaxLanes);
    // Alone, nothing comes to a lane.
    if (size() > 1) {
      const core::BlockingScope scope("comm::ensure_lanes", device(), std::source_location::current());
      while (core_->lanes() < count) core_->add_lane();
    }
    lanes_ = std::max(lanes_, count);
  }
  std::shared_ptr<Store> store() const override { return core_->config().store; }
  const std::uint64_t* failure_word() const override { return core_->failure_word(); }

  std::shared_ptr<ProcessGroup> split(int color, int key, std::source_location where) override {
    const std::uint64_t call = ++splits_;
    const SplitPlan plan = plan_split(*this, color, key, where);
    if (color < 0) return nullptr;
    NcclConfig config = core_->config();
    config.rank = plan.rank;
    config.size = static_cast<int>(plan.members.size());
    config.store = std::make_shared<PrefixStore>(concat("split/", call, "/", color, "/"), core_->config().store);
    return make_nccl_group(config, where);
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
    core_->note_call(collective);
    const auto timeout = core_->timeout_of(collective);
    auto work = std::make_shared<StreamWork>(std::move(collective), timeout, core_, device());
    core_->admit(work, *watchdog_);
    if (work->is_completed()) return Work(std::move(work));  // the group is dead
    core_->settle_many();
    if (message) {
      auto ready = std::make_shared<Event>(device());
      ready->record(current_stream(device()));
      work->set_ready(std::move(ready));
      if (!messages_) messages_ = std::make_unique<Messages>(core_);
      messages_->post(work);
    } else if (!core_->config().check_collectives || calls_agree(*work)) {
      core_->enqueue_on(core_->lane(work->collective().options.lane), *work);
    }
    return Work(std::move(work));
  }

 private:
  static constexpr int kMaxLanes = 64;

  /// Compares what all ranks call, over the store; on a difference the work has failed, and the group with it.
  bool calls_agree(StreamWork& work) {
    const Collective& what = work.collective();
    const core::BlockingScope scope("comm: comparing what the ranks call", device(), what.where);
    const auto key = [&](std::uint64_t sequence, int peer) {
      return concat("check/", what.options.lane, "/", sequence, "/", peer);
    };
    const std::string label = what.options.label.empty() ? "" : concat(" (", what.options.label, ")");
    std::vector<std::string> texts;
    try {
      Store& store = core_->store();
      store.set_text(key(what.sequence, rank()), concat(describe(what), label));
      for (int peer = 0; peer < size(); ++peer) {
        // In slices: a death meanwhile must end it.
        while (!store.check(key(what.sequence, peer))) {
          if (work.is_completed()) return false;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        texts.push_back(store.get_text(key(what.sequence, peer), work.remaining()));
      }
      // Everybody has come here, so everybody has read what stood there before.
      if (what.sequence > 1) store.erase(key(what.sequence - 1, rank()));
    } catch (const Error& error) {
      core_->finish(work, {.timeout = false, .text = in_collective(what, rank(), size(), error.what())});
      return false;
    }
    for (int peer = 1; peer < size(); ++peer) {
      const std::string& theirs = texts[static_cast<std::size_t>(peer)];
      if (theirs == texts.front()) continue;
      core_->finish(work, {.timeout = false,
                           .text = in_collective(what, rank(), size(),
                                                 concat("the ranks differ: rank 0 called ", texts.front(), ", rank ",
                                                        peer, " called ", theirs))});
      return false;
    }
    return true;
  }

  const std::shared_ptr<Watchdog> watchdog_;
  const std::shared_ptr<NcclCore> core_;
  const int exceptions_at_birth_;
  int lanes_ = 0;
  std::unique_ptr<Messages> messages_;
  std::map<std::pair<int, int>, std::uint64_t> sent_;  // by peer and tag
  std::map<std::pair<int, int>, std::uint64_t> received_;
  std::uint64_t splits_ = 0;
};

}  // namespace

bool nccl_is_built() { return true; }

std::shared_ptr<ProcessGroup> make_nccl_group(const NcclConfig& config, std::source_location where) {
  DDP_CHECK(config.device.is_cuda(), InvalidArgument, "a NCCL group on device ", config.device,
            "; it needs a cuda device");
  core::check_device(config.device);
  DDP_CHECK(config.store != nullptr, InvalidArgument, "a NCCL group needs a store");
  auto group = std::make_shared<NcclGroup>(config);
  group->connect();
  // Nobody goes on, and perhaps away with the store, before all ranks are connected.
  group->barrier({.label = "init"}, where);
  return group;
}

}  // namespace ddp::comm
