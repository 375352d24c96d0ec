#include "autograd/accumulate_grad.h"

#include <algorithm>

#include "tensor/copy.h"
#include "tensor/elementwise.h"

namespace ddp::autograd {

namespace {

/// True when the elements fill a block of memory without gaps and without sharing.
bool is_dense(const Dims& sizes, const Dims& strides) {
  if (sizes.product() == 0) return true;
  Dims order;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1) order.push_back(static_cast<std::int64_t>(i));
  }
  const auto stride = [&](std::int64_t i) { return strides[static_cast<std::size_t>(i)]; };
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return stride(a) < stride(b); });
  std::int64_t expected = 1;
  for (const std::int64_t i : order) {
    if (stride(i) != expected) return false;
    expected *= sizes[static_cast<std::size_t>(i)];
  }
  return true;
}

}  // namespace

AccumulateGrad::AccumulateGrad(const Tensor& leaf)
    : Node(leaf.device(), true),
      sizes_(leaf.sizes()),
      strides_(is_dense(leaf.sizes(), leaf.strides()) ? leaf.strides() : contiguous_strides(leaf.sizes())),
      dtype_(leaf.dtype()) {}

void AccumulateGrad::apply(std::vector<Tensor>& /*grads*/, std::vector<Tensor>& /*inputs*/) {
  struct Running {
    explicit Running(AccumulateGrad& owner) : owner(owner) { ++owner.running_hooks_; }
    ~Running() {
      if (--owner.running_hooks_ == 0) owner.erase_removed_hooks();
    }
    AccumulateGrad& owner;
  };
  if (hooks_.empty()) return;
  const Running running(*this);
  for (auto& [id, hook] : hooks_) {
    if (id != 0) hook(*this);
  }
}

Tensor AccumulateGrad::make_memory() const {
  const Tensor flat = empty(sizes_, {dtype_, device()});
  return strides_ == flat.strides() ? flat : make_view(flat, sizes_, strides_, 0);
}

void AccumulateGrad::check_same(const Tensor& gradient, std::string_view what) const {
  DDP_CHECK(gradient.sizes() == sizes_, AutogradError, what, " has sizes ", gradient.sizes(),
            ", but its tensor has sizes ", sizes_);
  DDP_CHECK(gradient.dtype() == dtype_, AutogradError, what, " is ", gradient.dtype(), ", but its tensor is ", dtype_);
  DDP_CHECK(gradient.device() == device(), AutogradError, what, " is on ", gradient.device(), ", but its tensor is on ",
            device());
}

Destination AccumulateGrad::next_destination() {
  if (valid_) return {memory_, true};
  const bool held = memory_.defined() && !external_ &&
                    (memory_.impl()->use_count() > 1 || memory_.impl()->storage()->use_count() > 1);
  if (!memory_.defined() || held) memory_ = make_memory();
  return {memory_, false};
}

void AccumulateGrad::contribute(const Tensor& gradient) {
  if (!gradient.is_same(memory_)) {
    check_same(gradient, "a gradient");
    // A gradient that nobody else can see becomes the memory.
    if (!valid_ && !external_ && gradient.strides() == strides_ && is_exclusive(gradient) &&
        gradient.impl()->storage()->bytes() == static_cast<std::size_t>(gradient.nbytes())) {
      memory_ = gradient;
    } else {
      const Destination to = next_destination();
      if (to.accumulate) {
        raw::axpy_(to.tensor, gradient, 1.0);
      } else {
        raw::copy_(to.tensor, gradient);
      }
      if (external_) bytes_copied_ += gradient.nbytes();
    }
  }
  valid_ = true;
  memory_.impl()->storage()->bump_version();
}

void AccumulateGrad::clear() { valid_ = false; }

void AccumulateGrad::assign(const Tensor& gradient) {
  check_same(gradient, "a gradient that is assigned");
  if (external_) {
    if (!gradient.is_same(memory_)) {
      raw::copy_(memory_, gradient);
      bytes_copied_ += gradient.nbytes();
      memory_.impl()->storage()->bump_version();
    }
  } else if (!is_dense(gradient.sizes(), gradient.strides())) {
    memory_ = raw::clone(gradient);  // elements that share memory cannot be added to
  } else {
    memory_ = gradient.impl()->autograd ? alias(gradient) : gradient;
  }
  valid_ = true;
}

void AccumulateGrad::set_destination(const Tensor& view) {
  if (!view.defined()) {
    if (!external_) return;
    const Tensor old = memory_;
    external_ = false;
    memory_ = Tensor();
    if (valid_) {
      memory_ = make_memory();
      raw::copy_(memory_, old);
      bytes_copied_ += old.nbytes();
    }
    return;
  }
  check_same(view, "a gradient's destination");
  if (valid_ && !view.is_same(memory_)) {
    raw::copy_(view, memory_);
    bytes_copied_ += view.nbytes();
  }
  memory_ = view;
  external_ = true;
}

std::uint64_t AccumulateGrad::add_hook(Hook hook) {
  hooks_.emplace_back(next_id_, std::move(hook));
  return next_id_++;
}

void AccumulateGrad::remove_hook(std::uint64_t id) {
  if (id == 0) return;
  for (auto& entry : hooks_) {
    if (entry.first == id) entry.first = 0;
  }
  if (running_hooks_ == 0) erase_removed_hooks();
}

void AccumulateGrad::erase_removed_hooks() {
  hooks_.remove_if([](const auto& entry) { return entry.first == 0; });
}

IntrusivePtr<AccumulateGrad> accumulator_of(const Tensor& leaf) {
  DDP_CHECK(leaf.defined() && leaf.requires_grad(), AutogradError,
            "only a leaf that requires grad has a gradient; this tensor does not require grad");
  AutogradMeta* meta = meta_of(leaf);
  if (meta == nullptr) {
    auto made = make_intrusive<AutogradMeta>();
    meta = made.get();
    leaf.impl()->autograd = std::move(made);
  }
  DDP_CHECK(!meta->node, AutogradError, "only a leaf has a gradient; this tensor of sizes ", leaf.sizes(),
            " was made by ", meta->node->name());
  auto* old = static_cast<AccumulateGrad*>(meta->accumulator.get());
  if (old != nullptr && old->sizes() == leaf.sizes() && old->dtype() == leaf.dtype() &&
      old->device() == leaf.device()) {
    return IntrusivePtr<AccumulateGrad>(old);
  }
  // First use, or the leaf has got other memory (Module::to): its hooks stay with it.
  auto accumulator = make_intrusive<AccumulateGrad>(leaf);
  if (old != nullptr) {
    accumulator->hooks_.swap(old->hooks_);
    accumulator->next_id_ = old->next_id_;
  }
  meta->accumulator = accumulator;
  return accumulator;
}

}  // namespace ddp::autograd
