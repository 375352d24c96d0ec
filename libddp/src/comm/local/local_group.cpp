#include "comm/local/local_group.h"

#include <algorithm>
#include <exception>

#include "comm/split_plan.h"
#include "core/device_runtime.h"
#include "ddp/comm/process_group.h"

namespace ddp::comm {
namespace {

class LocalGroup final : public ProcessGroup {
 public:
  LocalGroup(std::shared_ptr<LocalHub> hub, int rank)
      : ProcessGroup(rank, hub->size(), hub->device(rank), hub->timeout()),
        hub_(std::move(hub)),
        watchdog_(Watchdog::instance()),
        core_(std::make_shared<LocalCore>(hub_, rank, hub_->size(), hub_->timeout())),
        exceptions_at_birth_(std::uncaught_exceptions()) {
    hub_->attach(rank, core_);
    watchdog_->add(core_);
  }

  ~LocalGroup() override {
    if (std::uncaught_exceptions() > exceptions_at_birth_) {
      abort("destroyed while an exception is on its way");
    } else {
      core_->drain();
    }
    core_->let_go();
    watchdog_->remove(core_.get());
  }

  std::string backend() const override { return "local"; }
  int lanes() const override { return lanes_; }
  void ensure_lanes(int count) override {
    DDP_CHECK(count >= 1, InvalidArgument, "ensure_lanes: ", count, " lanes; at least 1 is needed");
    lanes_ = std::max(lanes_, count);
  }

  std::shared_ptr<ProcessGroup> split(int color, int key, std::source_location where) override;

  void abort(const std::string& reason) noexcept override {
    try {
      core_->die({.timeout = false, .text = concat("rank ", rank(), " aborted: ", reason)});
    } catch (const std::exception&) {
      // Out of memory for the text: nothing left to do here.
    }
  }

 protected:
  Work launch(Collective collective) override {
    if (hub_->on_device()) return launch_on_device(std::move(collective));
    auto work = core_->issue(std::move(collective), *watchdog_);
    if (!work->is_completed()) hub_->arrive(rank(), work);
    return Work(std::move(work));
  }

 private:
  Work launch_on_device(Collective collective) {
    const auto timeout = core_->timeout_of(collective);
    auto work = std::make_shared<StreamWork>(std::move(collective), timeout, core_, device());
    auto ready = std::make_shared<Event>(device());
    ready->record(current_stream(device()));
    work->set_ready(std::move(ready));
    core_->admit(work, *watchdog_);
    core_->settle_many();
    if (!work->is_completed()) hub_->arrive(rank(), work);
    return Work(std::move(work));
  }

  const std::shared_ptr<LocalHub> hub_;
  const std::shared_ptr<Watchdog> watchdog_;
  const std::shared_ptr<LocalCore> core_;
  const int exceptions_at_birth_;
  int lanes_ = 1;
  std::uint64_t splits_ = 0;
};

std::shared_ptr<ProcessGroup> LocalGroup::split(int color, int key, std::source_location where) {
  const std::uint64_t call = ++splits_;
  const SplitPlan plan = plan_split(*this, color, key, where);
  if (color < 0) return nullptr;
  auto group = std::make_shared<LocalGroup>(hub_->child(call, color, plan.members), plan.rank);
  // Nobody goes on, and perhaps away, before all members hold the new hub.
  group->barrier({.label = "split"}, where);
  return group;
}

}  // namespace

std::vector<std::shared_ptr<ProcessGroup>> init_local_groups(const std::vector<Device>& devices,
                                                             std::chrono::milliseconds timeout) {
  DDP_CHECK(!devices.empty(), InvalidArgument, "init_local_groups: no devices were given");
  for (const Device device : devices) {
    core::check_device(device);
    DDP_CHECK(device.type == devices.front().type, InvalidArgument, "init_local_groups: ", devices.front(), " and ",
              device, " in one group; all ranks must be on CPU devices, or all on CUDA ones");
  }
  const auto hub = std::make_shared<LocalHub>(devices, timeout);
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  groups.reserve(devices.size());
  for (int rank = 0; rank < hub->size(); ++rank) groups.push_back(std::make_shared<LocalGroup>(hub, rank));
  return groups;
}

}  // namespace ddp::comm
