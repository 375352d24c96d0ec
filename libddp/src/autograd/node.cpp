#include "autograd/node.h"

#include <utility>

#include "autograd/accumulate_grad.h"
#include "core/thread_state.h"

namespace ddp::autograd {

SavedTensor::SavedTensor(const Tensor& tensor)
    : tensor_(tensor.defined() ? alias(tensor) : Tensor()),
      version_(tensor.defined() ? tensor.version() : 0),
      saved_(true) {}

const Tensor& SavedTensor::get(std::string_view what) const {
  DDP_CHECK(!released_, AutogradError, "backward a second time through ", what,
            ": its saved tensors were freed by the first backward; pass retain_graph = true to that one");
  DDP_CHECK(saved_, AutogradError, what, " saved no tensor here");
  if (tensor_.defined()) {
    DDP_CHECK(tensor_.version() == version_, AutogradError, "a tensor of sizes ", tensor_.sizes(), " that ", what,
              " saved for backward was changed in place: it is at version ", tensor_.version(), ", saved was version ",
              version_);
  }
  return tensor_;
}

void SavedTensor::release() {
  if (!saved_) return;
  tensor_ = Tensor();
  released_ = true;
}

namespace {

// Process-wide, so that the order of nodes recorded by different threads is that of recording.
std::uint64_t next_sequence() {
  static std::atomic<std::uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Node::Node(Device device, bool leaf) : stream_(current_stream(device)), sequence_(next_sequence()), leaf_(leaf) {}

namespace {

// The nodes whose last reference went while another one was being destroyed on this thread, linked by next_dead_.
constinit thread_local Node* t_dead = nullptr;
constinit thread_local bool t_destroying = false;

}  // namespace

Node::~Node() {
  for (Edge& edge : edges_) {
    if (Node* last = edge.node.release_last()) {
      last->next_dead_ = t_dead;
      t_dead = last;
    }
  }
  if (t_destroying) return;  // the outermost destructor destroys them
  t_destroying = true;
  while (t_dead != nullptr) delete std::exchange(t_dead, t_dead->next_dead_);
  t_destroying = false;
}

void Node::add_edge(const Tensor& input) {
  Edge edge;
  if (input.defined() && input.impl()->requires_grad) {
    AutogradMeta* meta = meta_of(input);
    if (meta != nullptr && meta->node) {
      edge.node = meta->node;
      edge.index = meta->index;
    } else {
      edge.node = accumulator_of(input);
    }
  }
  edges_.push_back(std::move(edge));
}

Destination Node::destination(std::size_t i) const {
  Node* target = edges_[i].node.get();
  if (target == nullptr || !target->is_leaf() || target->device() != device()) return {};
  for (std::size_t j = 0; j < i; ++j) {
    if (edges_[j].node.get() == target) return {};
  }
  return static_cast<AccumulateGrad*>(target)->next_destination();
}

void set_history(const Tensor& result, IntrusivePtr<Node> node) {
  auto meta = make_intrusive<AutogradMeta>();
  meta->index = node->num_results_++;
  meta->node = std::move(node);
  result.impl()->autograd = std::move(meta);
  result.impl()->requires_grad = true;
}

bool needs_graph(std::initializer_list<const Tensor*> inputs) {
  if (!core::grad_mode()) return false;
  for (const Tensor* input : inputs) {
    if (input->defined() && input->impl()->requires_grad) return true;
  }
  return false;
}

bool needs_graph(const std::vector<Tensor>& inputs) {
  if (!core::grad_mode()) return false;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.impl()->requires_grad) return true;
  }
  return false;
}

bool is_exclusive(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  return impl.use_count() == 1 && impl.storage()->use_count() == 1 && !impl.storage()->is_foreign() &&
         impl.is_contiguous() && !impl.autograd;
}

Tensor alias(const Tensor& tensor) { return make_alias(tensor); }

}  // namespace ddp::autograd
