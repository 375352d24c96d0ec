#include <algorithm>
#include <atomic>

#include "autograd/accumulate_grad.h"
#include "autograd/engine.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/parallel/distributed_data_parallel.h"
#include "parallel/model_sync.h"
#include "parallel/output_node.h"
#include "parallel/slot_check.h"
#include "parallel/start_check.h"
#include "tensor/tensor_impl.h"

namespace ddp::parallel {
namespace {

constexpr std::int64_t kStartPieceBytes = 64 << 20;
constexpr const char* kSubject = "DistributedDataParallel";

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TensorDescription describe(const std::string& name, const Tensor& tensor) {
  return {name, tensor.sizes(), tensor.strides(), tensor.dtype(), tensor.requires_grad()};
}

const char* text(bool value) { return value ? "true" : "false"; }

}  // namespace

// Shared with the graph and the leaves' hooks by weak pointers: a graph may outlive the wrapper.
class DDPCore::Impl : public std::enable_shared_from_this<DDPCore::Impl> {
 public:
  Impl(nn::Module& module, std::shared_ptr<comm::ProcessGroup> group, const DDPOptions& options,
       std::source_location where);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void attach();
  void before_forward();
  void after_forward(const std::vector<Tensor*>& outputs);
  void begin_pass(bool no_sync);
  void finish_pass();
  void abandon_pass() noexcept;
  void verify(std::source_location where) {
    if (reducer_) reducer_->verify(where);
  }
  ReducerCounters counters() const;

  const std::shared_ptr<comm::ProcessGroup>& group() const { return group_; }
  Reducer* reducer() const { return reducer_.get(); }
  std::atomic<int>& no_sync_depth() { return no_sync_depth_; }

 private:
  // A parameter as the constructor saw it.
  struct Known {
    std::string name;
    Tensor tensor;
    Dims sizes;
    DType dtype;
    Device device;
    bool ignored = false;
    bool trainable = false;  // has a slot
    std::size_t slot = 0;
  };
  struct Slot {
    std::string name;
    IntrusivePtr<autograd::AccumulateGrad> leaf;
    std::uint64_t hook = 0;
    std::int64_t copied_before = 0;
  };

  std::string find_refusal() const;
  Description description() const;
  void check_parameters();
  void bind_destinations();
  void became_ready(std::size_t slot, autograd::AccumulateGrad& leaf);
  void sync_buffers(std::source_location where);

  nn::Module& module_;
  const std::shared_ptr<comm::ProcessGroup> group_;
  const DDPOptions options_;
  const std::source_location where_;
  std::vector<Known> parameters_;
  std::vector<nn::NamedTensor> buffers_;
  std::vector<Slot> slots_;
  std::vector<bool> frozen_;  // by slot, at the latest forward
  bool any_frozen_ = false;
  std::unique_ptr<Reducer> reducer_;
  std::atomic<int> no_sync_depth_ = 0;
  bool latest_forward_no_sync_ = false;
  bool pass_open_ = false;
  bool claimed_ = false;
};

namespace {

// Ends the pass exactly once: by the end-of-backward callback, or, when an exception drops that, by giving up.
template <class Core>
class PassEnd {
 public:
  explicit PassEnd(std::weak_ptr<Core> core) : core_(std::move(core)) {}
  PassEnd(const PassEnd&) = delete;
  PassEnd& operator=(const PassEnd&) = delete;
  ~PassEnd() {
    if (done_) return;
    if (const auto core = core_.lock()) core->abandon_pass();
  }
  void finish() {
    done_ = true;
    if (const auto core = core_.lock()) core->finish_pass();
  }

 private:
  std::weak_ptr<Core> core_;
  bool done_ = false;
};

}  // namespace

DDPCore::Impl::Impl(nn::Module& module, std::shared_ptr<comm::ProcessGroup> group, const DDPOptions& options,
                    std::source_location where)
    : module_(module), group_(std::move(group)), options_(options), where_(where) {
  for (const auto& [name, tensor] : module.named_parameters()) {
    const bool ignored = contains(options_.parameters_to_ignore, name);
    const bool trainable = !ignored && tensor.requires_grad();
    parameters_.push_back(
        {name, tensor, tensor.sizes(), tensor.dtype(), tensor.device(), ignored, trainable, slots_.size()});
    if (trainable) slots_.push_back({name, autograd::accumulator_of(tensor)});
  }
  for (const auto& buffer : module.named_buffers()) {
    if (!contains(options_.parameters_to_ignore, buffer.first)) buffers_.push_back(buffer);
  }
  frozen_.assign(slots_.size(), false);

  const std::string refusal = find_refusal();
  if (group_->size() > 1 && options_.init_sync) {
    Description mine = description();
    mine.refusal = refusal;
    check_same_on_all_ranks(*group_, mine, where);
  }
  DDP_CHECK(refusal.empty(), InvalidArgument, kSubject, ": ", refusal);
  if (group_->size() > 1 && options_.init_sync) {
    std::vector<Tensor> state;
    for (const Known& parameter : parameters_) {
      if (!parameter.ignored) state.push_back(parameter.tensor);
    }
    for (const auto& buffer : buffers_) state.push_back(buffer.second);
    broadcast_from_rank_0(*group_, state, "model at the start", kStartPieceBytes, where);
  }
}

// What the constructor cannot accept, for all ranks to know before they wait for each other.
std::string DDPCore::Impl::find_refusal() const {
  const std::vector<nn::NamedTensor> all_buffers = module_.named_buffers();
  for (const std::string& name : options_.parameters_to_ignore) {
    const bool known =
        std::any_of(parameters_.begin(), parameters_.end(), [&](const Known& one) { return one.name == name; }) ||
        std::any_of(all_buffers.begin(), all_buffers.end(), [&](const auto& one) { return one.first == name; });
    if (!known) return concat("parameters_to_ignore has '", name, "', which is no parameter or buffer of the module");
  }
  for (const Known& parameter : parameters_) {
    if (parameter.ignored) continue;
    if (parameter.device != group_->device()) {
      return concat("parameter '", parameter.name, "' is on ", parameter.device, ", the group's device is ",
                    group_->device(), "; call module.to(device) first");
    }
    if (parameter.trainable && slots_[parameter.slot].leaf->claimed()) {
      return concat("parameter '", parameter.name,
                    "' belongs to a module that is wrapped already; its gradient would be averaged twice");
    }
  }
  for (const auto& [name, buffer] : buffers_) {
    if (buffer.device() != group_->device()) {
      return concat("buffer '", name, "' is on ", buffer.device(), ", the group's device is ", group_->device(),
                    "; call module.to(device) first");
    }
  }
  return {};
}

Description DDPCore::Impl::description() const {
  Description mine;
  mine.subject = kSubject;
  for (const Known& parameter : parameters_) {
    if (!parameter.ignored) mine.parameters.push_back(describe(parameter.name, parameter.tensor));
  }
  for (const auto& [name, buffer] : buffers_) mine.buffers.push_back(describe(name, buffer));
  mine.settings = {{"bucket_cap_bytes", numbers(options_.bucket_cap_bytes)},
                   {"first_bucket_bytes", std::to_string(options_.first_bucket_bytes)},
                   {"gradient_as_bucket_view", text(options_.gradient_as_bucket_view)},
                   {"broadcast_buffers", text(options_.broadcast_buffers)},
                   {"rebuild", text(options_.rebuild)},
                   {"lanes", std::to_string(options_.lanes)}};
  return mine;
}

// What needs weak_from_this, hence after construction.
void DDPCore::Impl::attach() {
  for (Slot& slot : slots_) slot.leaf->set_claimed(true);
  claimed_ = true;
  if (group_->size() == 1 || slots_.empty()) return;
  std::vector<GradientSlot> gradients;
  for (const Known& parameter : parameters_) {
    if (!parameter.trainable) continue;
    gradients.push_back(
        {parameter.name, parameter.sizes, parameter.dtype, parameter.device, parameter.tensor.strides()});
  }
  ReducerOptions options{.bucket_cap_bytes = options_.bucket_cap_bytes,
                         .first_bucket_bytes = options_.first_bucket_bytes,
                         .rebuild = options_.rebuild,
                         .lanes = options_.lanes,
                         .check = false,            // done for the whole model
                         .carry_contents = false};  // set_destination carries those gradients that are valid
  if (options_.gradient_as_bucket_view) options.on_moved = [this] { bind_destinations(); };
  reducer_ = std::make_unique<Reducer>(group_, std::move(gradients), std::move(options), where_);
  if (options_.gradient_as_bucket_view) bind_destinations();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].copied_before = slots_[i].leaf->bytes_copied();
    slots_[i].hook = slots_[i].leaf->add_hook([weak = weak_from_this(), i](autograd::AccumulateGrad& leaf) {
      if (const auto self = weak.lock()) self->became_ready(i, leaf);
    });
  }
}

DDPCore::Impl::~Impl() {
  for (Slot& slot : slots_) {
    if (slot.hook != 0) slot.leaf->remove_hook(slot.hook);
  }
  reducer_.reset();  // gives an open pass up
  for (Slot& slot : slots_) {
    if (claimed_) slot.leaf->set_claimed(false);
    // A gradient that is copied out of its bucket obeys the reducer's verdicts no longer.
    if (slot.leaf->memory().defined()) slot.leaf->memory().impl()->storage()->set_refusal({});
    if (slot.leaf->has_external_destination()) {
      try {
        slot.leaf->set_destination({});
      } catch (...) {
        slot.leaf->clear();  // no memory for a gradient of its own: it is undefined from now on
      }
    }
  }
}

void DDPCore::Impl::bind_destinations() {
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].leaf->set_destination(reducer_->gradient(i));
}

// The module must still be what was wrapped, but for parameters that are frozen for a while.
void DDPCore::Impl::check_parameters() {
  const std::vector<Tensor> present = module_.parameters();
  DDP_CHECK(present.size() == parameters_.size(), InvalidArgument, kSubject, ": the module has ", present.size(),
            " parameters, it had ", parameters_.size(), " when it was wrapped; wrap it again after changing it");
  for (std::size_t i = 0; i < present.size(); ++i) {
    const Known& known = parameters_[i];
    if (known.ignored) continue;
    const Tensor& now = present[i];
    DDP_CHECK(now.is_same(known.tensor), InvalidArgument, kSubject, ": parameter '", known.name,
              "' has been replaced by another tensor since the module was wrapped; wrap it again after changing it");
    DDP_CHECK(known.trainable || !now.requires_grad(), InvalidArgument, kSubject, ": parameter '", known.name,
              "' did not require grad when the module was wrapped and does now; wrap the module again");
    if (known.trainable && frozen_[known.slot] == now.requires_grad()) {
      reducer_->set_active(known.slot, now.requires_grad());
      frozen_[known.slot] = !now.requires_grad();
      any_frozen_ = std::find(frozen_.begin(), frozen_.end(), true) != frozen_.end();
    }
  }
}

void DDPCore::Impl::sync_buffers(std::source_location where) {
  std::vector<Tensor> tensors;
  tensors.reserve(buffers_.size());
  for (const auto& [name, buffer] : buffers_) {
    // Under a handle with a version of its own: a part in evaluation mode has saved its buffers for the backward of an
    // earlier forward, and gets the same numbers again.
    tensors.push_back(from_blob(buffer.data(), buffer.sizes(), buffer.options(), buffer.strides(), [kept = buffer] {}));
  }
  broadcast_from_rank_0(*group_, tensors, "buffers before forward", 0, where);
}

void DDPCore::Impl::before_forward() {
  if (group_->size() == 1 || pass_open_) return;
  if (reducer_) reducer_->poll(where_);
  if (!grad_mode_enabled()) return;
  latest_forward_no_sync_ = no_sync_depth_ > 0;
  if (reducer_) check_parameters();
  if (latest_forward_no_sync_ || !module_.is_training()) return;
  if (reducer_) reducer_->rebuild(where_);
  if (options_.broadcast_buffers && !buffers_.empty()) sync_buffers(where_);
}

void DDPCore::Impl::after_forward(const std::vector<Tensor*>& outputs) {
  if (!reducer_ || !grad_mode_enabled()) return;
  IntrusivePtr<OutputNode> node;
  for (Tensor* output : outputs) {
    if (!output->defined() || !output->requires_grad()) continue;
    if (!node) {
      node = make_intrusive<OutputNode>(group_->device(), [weak = weak_from_this(), no_sync = latest_forward_no_sync_] {
        if (const auto self = weak.lock()) self->begin_pass(no_sync);
      });
    }
    node->add_edge(*output);
    Tensor through = make_view(*output, output->sizes(), output->strides(), output->storage_offset());
    autograd::set_history(through, node);
    *output = std::move(through);
  }
}

void DDPCore::Impl::begin_pass(bool no_sync) {
  if (pass_open_) return;
  // The re-plan has its place before a forward: here gradients may be half written.
  reducer_->prepare(!no_sync && no_sync_depth_ == 0, false, where_);
  pass_open_ = true;
  const auto end = std::make_shared<PassEnd<Impl>>(weak_from_this());
  for (std::size_t slot = 0; any_frozen_ && slot < slots_.size(); ++slot) {
    if (!frozen_[slot] || slots_[slot].leaf->valid()) continue;
    Tensor place = reducer_->gradient(slot);
    place.zero_();
  }
  autograd::queue_callback([end] { end->finish(); });
}

void DDPCore::Impl::became_ready(std::size_t slot, autograd::AccumulateGrad& leaf) {
  begin_pass(latest_forward_no_sync_);  // a leaf that the loss reaches past the outputs
  if (options_.gradient_as_bucket_view) {
    reducer_->mark_ready(slot);
  } else {
    reducer_->mark_ready(slot, leaf.gradient());
  }
}

void DDPCore::Impl::finish_pass() {
  pass_open_ = false;
  if (options_.blocking_check) {
    reducer_->finish_blocking(where_);
  } else {
    reducer_->finish(where_);
  }
}

void DDPCore::Impl::abandon_pass() noexcept {
  pass_open_ = false;
  reducer_->abandon();
}

ReducerCounters DDPCore::Impl::counters() const {
  if (!reducer_) return {};
  ReducerCounters counters = reducer_->counters();
  for (const Slot& slot : slots_) {
    counters.bytes_copied += static_cast<std::uint64_t>(slot.leaf->bytes_copied() - slot.copied_before);
  }
  return counters;
}

DDPCore::DDPCore(nn::Module& module, std::shared_ptr<comm::ProcessGroup> group, const DDPOptions& options,
                 std::source_location where) {
  DDP_CHECK(group != nullptr, InvalidArgument, kSubject, ": the group is null");
  impl_ = std::make_shared<Impl>(module, std::move(group), options, where);
  impl_->attach();
}
DDPCore::~DDPCore() = default;
void DDPCore::before_forward() { impl_->before_forward(); }
void DDPCore::after_forward(const std::vector<Tensor*>& outputs) { impl_->after_forward(outputs); }
const std::shared_ptr<comm::ProcessGroup>& DDPCore::group() const { return impl_->group(); }
void DDPCore::verify(std::source_location where) { impl_->verify(where); }
Reducer* DDPCore::reducer() const { return impl_->reducer(); }
ReducerCounters DDPCore::counters() const { return impl_->counters(); }
void DDPCore::enter_no_sync() { ++impl_->no_sync_depth(); }
void DDPCore::leave_no_sync() { --impl_->no_sync_depth(); }

}  // namespace ddp::parallel
