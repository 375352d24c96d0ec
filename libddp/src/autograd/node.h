#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/inline_vector.h"
#include "core/object_pool.h"
#include "ddp/tensor/tensor.h"
#include "tensor/tensor_impl.h"

/// The tape. A recorded operation leaves a Node whose edges lead to the nodes of its inputs; backward
/// walks them from the root. Everything here is confined to one thread per device during backward.
namespace ddp::autograd {

class Node;

/// Where the gradient of one input goes: a node, and which of that node's results it belongs to.
struct Edge {
  IntrusivePtr<Node> node;  // null: that input needs no gradient
  std::uint32_t index = 0;
};

/// Where a backward function may write the gradient of one input, so that nothing is copied afterwards.
struct Destination {
  Tensor tensor;            // undefined: make a new one
  bool accumulate = false;  // add to what is there, else overwrite
};

/// A tensor kept for backward: shares the numbers, not the graph, and notices in-place changes.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor);
  /// Throws AutogradError when the graph was already used and freed, or the tensor has been changed in
  /// place since (the text has `what`, both versions and the sizes).
  const Tensor& get(std::string_view what) const;
  void release();

 private:
  Tensor tensor_;
  std::uint32_t version_ = 0;
  bool saved_ = false;
  bool released_ = false;
};

/// The engine's notes on a node during one pass; they live in the node so that a pass needs no table.
struct PassSlot {
  std::atomic<std::uint64_t> pass{0};   // the pass that uses the slot, 0: none
  std::uint32_t pending = 0;            // gradients still to arrive
  bool received = false;                // leaves: a defined gradient came
  core::InlineVector<Tensor, 1> grads;  // sums so far, one a result; leaves: contributions from other devices
  bool written = false;                 // leaves, in a pass over several streams: `writer` has written the gradient
  CUstream_st* writer = nullptr;
};

class Node : public RefCounted, public core::Pooled {
 public:
  /// `device`: where the results live and where `apply` runs.
  explicit Node(Device device) : Node(device, false) {}
  /// Releases a chain of nodes one after the other, so that a deep graph does not overflow the stack.
  ~Node() override;

  virtual std::string_view name() const = 0;
  /// `grads[i]` is the gradient of result i, undefined where none arrived (at least one is defined); it may be
  /// moved from. `inputs` has one undefined tensor for each edge: fills those whose edge is not null. An input
  /// whose `destination(i)` was written returns that tensor. Runs with grad mode off.
  virtual void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) = 0;
  /// Frees saved tensors after a backward without retain_graph.
  virtual void release_saved() {}
  /// True for AccumulateGrad.
  bool is_leaf() const { return leaf_; }

  Device device() const { return stream_.device(); }
  /// The current one when the operation was recorded: its backward runs there.
  StreamView stream() const { return stream_; }
  /// Later recorded operations have higher numbers; backward takes the highest ready one first.
  std::uint64_t sequence() const { return sequence_; }
  std::span<const Edge> edges() const { return {edges_.data(), edges_.size()}; }
  std::uint32_t num_results() const { return num_results_; }
  bool needs_input_grad(std::size_t i) const { return static_cast<bool>(edges_[i].node); }
  /// Edge for an input tensor: its maker, its AccumulateGrad, or null.
  void add_edge(const Tensor& input);

 protected:
  Node(Device device, bool leaf);
  /// The place for input i's gradient when that input is a leaf on this node's device; undefined otherwise, and
  /// for all but the first edge to the same leaf (two results written before either is counted would overwrite
  /// each other). Ask in `apply`, shortly before writing. Not using it is allowed.
  Destination destination(std::size_t i) const;

 private:
  friend void set_history(const Tensor& result, IntrusivePtr<Node> node);
  friend class Pass;
  StreamView stream_;
  std::uint64_t sequence_;
  core::InlineVector<Edge, 3> edges_;
  Node* next_dead_ = nullptr;  // see ~Node
  const bool leaf_;
  std::uint32_t num_results_ = 0;
  PassSlot slot_;
};

/// Fills the slot of TensorImpl: either made by `node` as result `index`, or a leaf with an accumulator.
class AutogradMeta final : public AutogradMetaBase {
 public:
  IntrusivePtr<Node> node;  // the maker; null for leaves
  std::uint32_t index = 0;
  IntrusivePtr<Node> accumulator;  // AccumulateGrad of a leaf; made on first use
};

/// Marks `result` as the next result of `node`; it then requires grad.
void set_history(const Tensor& result, IntrusivePtr<Node> node);

/// True when grad mode is on and one of the tensors requires grad.
bool needs_graph(std::initializer_list<const Tensor*> inputs);
bool needs_graph(const std::vector<Tensor>& inputs);
/// True when nothing but this handle can see the tensor's numbers, so that they may be changed or taken over.
bool is_exclusive(const Tensor& tensor);
/// The tensor's slot, null for a plain leaf that has none yet.
inline AutogradMeta* meta_of(const Tensor& tensor) { return static_cast<AutogradMeta*>(tensor.impl()->autograd.get()); }
/// The same numbers outside the graph, always a handle of its own.
Tensor alias(const Tensor& tensor);

}  // namespace ddp::autograd
