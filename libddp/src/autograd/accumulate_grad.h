#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/node.h"

namespace ddp::autograd {

/// A leaf's end of the graph: owns the gradient's memory and state. Contributions of one backward are
/// written or added straight into that memory; when the last one has arrived the hooks run, once.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(const Tensor& leaf);

  std::string_view name() const override { return "AccumulateGrad"; }
  /// Runs the hooks: the engine calls it when every contribution of this backward is in.
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override;

  const Dims& sizes() const { return sizes_; }
  DType dtype() const { return dtype_; }

  /// Where the next contribution may be written directly. Makes the memory on first use; memory that
  /// somebody still holds after `clear` is left to him and new memory is made, unless it is external.
  Destination next_destination();
  /// Takes one contribution: nothing to do when it *is* the destination's memory, else copies or adds
  /// (counted as copied bytes when the destination is external).
  void contribute(const Tensor& gradient);

  /// The gradient, undefined while none is valid.
  Tensor gradient() const { return valid_ ? memory_ : Tensor(); }
  bool valid() const { return valid_; }
  /// Marks the gradient undefined, keeps the memory.
  void clear();
  /// Assigns: copied when the memory is external, else taken over (same sizes, dtype, device, or throws).
  void assign(const Tensor& gradient);

  /// Gives the gradient a place: a view of these sizes, dtype and device, any strides. A valid gradient is
  /// carried over. Undefined: back to own memory (a valid gradient is copied out).
  void set_destination(const Tensor& view);
  bool has_external_destination() const { return external_; }
  /// The memory whether valid or not (undefined before first use without destination).
  const Tensor& memory() const { return memory_; }
  /// Declares the memory valid: used by the Reducer when another rank used the parameter.
  void set_valid(bool valid) { valid_ = valid; }
  /// Bytes that had to be copied into an external destination since construction.
  std::int64_t bytes_copied() const { return bytes_copied_; }

  /// Set by the one that averages this gradient over ranks; a second one refuses the leaf.
  bool claimed() const { return claimed_; }
  void set_claimed(bool claimed) { claimed_ = claimed; }

  using Hook = std::function<void(AccumulateGrad&)>;
  /// Runs after each backward in which this leaf got its complete gradient, on the thread that runs
  /// backward for its device. Returns an id for remove_hook.
  std::uint64_t add_hook(Hook hook);
  void remove_hook(std::uint64_t id);
  bool has_hooks() const { return !hooks_.empty(); }

 private:
  friend IntrusivePtr<AccumulateGrad> accumulator_of(const Tensor& leaf);
  Tensor make_memory() const;
  void check_same(const Tensor& gradient, std::string_view what) const;
  void erase_removed_hooks();

  Dims sizes_;
  Dims strides_;  // of memory made here: the leaf's where they are dense, else row-major
  DType dtype_;
  Tensor memory_;
  bool external_ = false;
  bool valid_ = false;
  bool claimed_ = false;
  std::int64_t bytes_copied_ = 0;
  std::uint64_t next_id_ = 1;
  std::list<std::pair<std::uint64_t, Hook>> hooks_;  // id 0: removed while the hooks were running
  int running_hooks_ = 0;
};

/// The accumulator that a tensor has already, null when it has none.
inline AccumulateGrad* existing_accumulator(const Tensor& tensor) {
  const AutogradMeta* meta = meta_of(tensor);
  return meta == nullptr ? nullptr : static_cast<AccumulateGrad*>(meta->accumulator.get());
}
/// The accumulator of a leaf that requires grad; made on first use. Throws AutogradError for others.
IntrusivePtr<AccumulateGrad> accumulator_of(const Tensor& leaf);

}  // namespace ddp::autograd
