#include "autograd/engine.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "autograd/accumulate_grad.h"
#include "autograd/pass.h"
#include "core/thread_state.h"
#include "tensor/elementwise.h"

namespace ddp::autograd {

namespace {

std::uint64_t next_pass_id() {
  static std::atomic<std::uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// Marks this thread as working for a pass, with grad mode off.
class PassScope {
 public:
  explicit PassScope(Pass* pass) : pass_(std::exchange(Pass::current(), pass)), mode_(core::grad_mode()) {
    core::grad_mode() = false;
  }
  ~PassScope() {
    Pass::current() = pass_;
    core::grad_mode() = mode_;
  }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  Pass* pass_;
  bool mode_;
};

void add_to(Tensor& sum, Tensor gradient) {
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (is_exclusive(sum)) {
    raw::axpy_(sum, gradient, 1.0);
  } else if (is_exclusive(gradient)) {
    raw::axpy_(gradient, sum, 1.0);
    sum = std::move(gradient);
  } else {
    sum = raw::binary(raw::Binary::add, sum, gradient);
  }
}

}  // namespace

Pass*& Pass::current() noexcept {
  static thread_local Pass* pass = nullptr;
  return pass;
}

namespace {

// Plain data: a backward may still run while the thread's thread_locals are being destroyed.
template <class Workspace>
struct Kept {
  Workspace* first = nullptr;
  bool over = false;
};

}  // namespace

struct Pass::Workspaces {
  static inline constinit thread_local Kept<Workspace> kept;

  static Workspace* take() {
    Workspace* one = kept.first;
    if (one == nullptr) return new Workspace;
    kept.first = one->next;
    return one;
  }
  static void give_back(Workspace* one) noexcept {
    struct AtThreadEnd {
      ~AtThreadEnd() {
        kept.over = true;
        while (kept.first != nullptr) delete std::exchange(kept.first, kept.first->next);
      }
    };
    if (kept.over) {
      delete one;
      return;
    }
    static thread_local AtThreadEnd at_end;
    static_cast<void>(at_end);
    one->next = kept.first;
    kept.first = one;
  }
};

Pass::Pass(IntrusivePtr<Node> root, std::uint32_t root_index, Device device, bool retain_graph)
    : id_(next_pass_id()),
      root_(std::move(root)),
      root_index_(root_index),
      retain_graph_(retain_graph),
      outer_(current()),
      workspace_(Workspaces::take()),
      lanes_(workspace_->lanes),
      visited_(workspace_->visited),
      callbacks_(workspace_->callbacks) {
  try {
    add_lane(device);
    count_dependencies();
  } catch (...) {
    for (Node* node : visited_) {
      if (node->slot_.pass.load(std::memory_order_relaxed) == id_) node->slot_.pass.store(0);
    }
    delete workspace_;
    throw;
  }
}

Pass::~Pass() {
  // After an error slots are still taken; later passes must find them free and empty.
  if (error_) {
    for (Node* node : visited_) {
      PassSlot& slot = node->slot_;
      if (slot.pass.load(std::memory_order_relaxed) != id_) continue;
      slot.grads.clear();
      slot.pending = 0;
      slot.received = false;
      slot.written = false;
      slot.pass.store(0, std::memory_order_release);
    }
  }
  // Dropped callbacks may run code of their owners: the workspace is still this pass's meanwhile.
  callbacks_.clear();
  visited_.clear();
  for (std::size_t i = 0; i < num_lanes_; ++i) {
    Lane& lane = *lanes_[i];
    lane.heap.clear();
    lane.grads.clear();
    lane.inputs.clear();
    lane.complete.clear();
    lane.side_streams.clear();
  }
  Workspaces::give_back(workspace_);
}

void Pass::add_lane(Device device) {
  if (num_lanes_ == lanes_.size()) lanes_.push_back(std::make_unique<Lane>());
  Lane& lane = *lanes_[num_lanes_];
  lane.device = device;
  lane.stream = current_stream(device);
  lane.scheduled = false;
  ++num_lanes_;
}

bool Pass::claim(Node& node) {
  if (node.slot_.pass.load(std::memory_order_relaxed) == id_) return false;  // no other thread writes this number
  std::uint64_t free = 0;
  if (node.slot_.pass.compare_exchange_strong(free, id_, std::memory_order_acq_rel)) return true;
  return free != id_ && overflow_.try_emplace(&node).second;
}

PassSlot& Pass::slot_of(Node& node) {
  if (node.slot_.pass.load(std::memory_order_relaxed) == id_) return node.slot_;
  return overflow_.at(&node);
}

std::size_t Pass::lane_of(const Node& node) {
  if (outer_ != nullptr) return 0;
  for (std::size_t i = 0; i < num_lanes_; ++i) {
    if (lanes_[i]->device == node.device()) return i;
  }
  add_lane(node.device());
  return num_lanes_ - 1;
}

void Pass::count_dependencies() {
  visited_.push_back(root_.get());
  claim(*root_);
  slot_of(*root_).pending = 1;
  // `visited_` is the list and the work still to do at once.
  for (std::size_t next = 0; next < visited_.size(); ++next) {
    Node& node = *visited_[next];
    const std::size_t lane = lane_of(node);
    side_streams_ = side_streams_ || (!node.is_leaf() && !(node.stream() == ambient(*lanes_[lane], node)));
    for (const Edge& edge : node.edges_) {
      if (!edge.node) continue;
      visited_.push_back(edge.node.get());
      if (!claim(*edge.node)) visited_.pop_back();
      ++slot_of(*edge.node).pending;
    }
  }
}

std::unique_lock<std::mutex> Pass::lock() {
  return several() ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

void Pass::fail(std::exception_ptr error) noexcept {
  const auto guard = lock();
  if (!error_) error_ = std::move(error);
}

void Pass::queue_callback(std::function<void()> callback) {
  const auto guard = lock();
  callbacks_.push_back(std::move(callback));
}

void Pass::run(Tensor gradient) {
  const PassScope scope(this);
  try {
    deliver(*lanes_[0], lanes_[0]->stream, *root_, root_index_, std::move(gradient));
  } catch (...) {
    fail(std::current_exception());
  }
  run_caller();
  if (side_streams_) join_streams();
  if (error_) std::rethrow_exception(error_);
  // A callback may queue further ones. Each is destroyed when it has run.
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    const std::function<void()> callback = std::exchange(callbacks_[i], nullptr);
    callback();
  }
}

void Pass::run_caller() {
  Lane& lane = *lanes_[0];
  for (;;) {
    Node* node = nullptr;
    {
      auto guard = lock();
      const auto workers_idle = [this] {
        return std::none_of(lanes_.begin(), lanes_.begin() + static_cast<std::ptrdiff_t>(num_lanes_),
                            [](const auto& other) { return other->scheduled; });
      };
      if (several()) {
        changed_.wait(guard, [&] { return (!error_ && !lane.heap.empty()) || workers_idle(); });
      }
      if (error_ || lane.heap.empty()) return;
      std::pop_heap(lane.heap.begin(), lane.heap.end());
      node = lane.heap.back().node;
      lane.heap.pop_back();
    }
    try {
      run_node(lane, *node);
    } catch (...) {
      fail(std::current_exception());
    }
  }
}

void Pass::drain(std::size_t index) noexcept {
  Lane& lane = *lanes_[index];
  const PassScope scope(this);
  std::optional<StreamGuard> stream;
  for (;;) {
    Node* node = nullptr;
    {
      const std::lock_guard guard(mutex_);
      if (error_ || lane.heap.empty()) {
        // Said under the lock: the caller may destroy the pass as soon as it sees the lane idle.
        lane.scheduled = false;
        changed_.notify_all();
        return;
      }
      std::pop_heap(lane.heap.begin(), lane.heap.end());
      node = lane.heap.back().node;
      lane.heap.pop_back();
    }
    try {
      if (!stream) stream.emplace(lane.stream);
      run_node(lane, *node);
    } catch (...) {
      fail(std::current_exception());
    }
  }
}

void Pass::push(std::size_t index, Node& node) {
  Lane& lane = *lanes_[index];
  lane.heap.push_back({node.is_leaf() ? std::numeric_limits<std::uint64_t>::max() : node.sequence(), &node});
  std::push_heap(lane.heap.begin(), lane.heap.end());
  if (index == 0) {
    if (several()) changed_.notify_all();
  } else if (!lane.scheduled) {
    wake_worker(lane.device, *this, index);
    lane.scheduled = true;
  }
}

bool Pass::contribute(Node& leaf, const Tensor& gradient) {
  PassSlot* slot = nullptr;
  {
    const auto guard = lock();
    slot = &slot_of(leaf);
  }
  if (gradient.defined()) {
    static_cast<AccumulateGrad&>(leaf).contribute(gradient);
    slot->received = true;
  }
  return --slot->pending == 0;
}

void Pass::finish_leaf(Lane& lane, Node& leaf) {
  bool received = false;
  {
    const auto guard = lock();
    PassSlot& slot = slot_of(leaf);
    received = std::exchange(slot.received, false);
    slot.written = false;
    slot.grads.clear();
    slot.pass.store(0, std::memory_order_release);
  }
  if (received) leaf.apply(lane.none, lane.none);
}

void Pass::deliver(Lane& lane, StreamView from, Node& target, std::uint32_t index, Tensor gradient) {
  const auto guard = lock();
  const std::size_t to = lane_of(target);
  PassSlot& slot = slot_of(target);
  const Lane& end = *lanes_[to];
  const StreamView stream = stream_of(end, target);
  const bool moves = &end != &lane || side_streams_;
  if (moves) make_ready(gradient, from, stream);
  if (target.is_leaf()) {
    // From another device, or the root itself: its lane takes it from here.
    slot.grads.push_back(std::move(gradient));
    push(to, target);
    return;
  }
  if (gradient.defined()) {
    slot.grads.extend(target.num_results_);
    if (moves && slot.grads[index].defined()) {
      const StreamGuard on(stream);
      add_to(slot.grads[index], std::move(gradient));
    } else {
      add_to(slot.grads[index], std::move(gradient));
    }
  }
  if (--slot.pending == 0) push(to, target);
}

void Pass::run_leaf(Lane& lane, Node& node) {
  core::InlineVector<Tensor, 1> arrived;
  {
    const auto guard = lock();
    // Empty when an earlier run of this leaf took several contributions at once and has finished it.
    if (node.slot_.pass.load(std::memory_order_relaxed) != id_ && !overflow_.contains(&node)) return;
    arrived = std::move(slot_of(node).grads);
  }
  bool complete = false;
  if (side_streams_) after_writer(node, ambient(lane, node));
  for (const Tensor& gradient : arrived) complete = contribute(node, gradient);
  if (side_streams_) note_writer(lane, node, ambient(lane, node));
  if (complete) finish_leaf(lane, node);
}

void Pass::run_node(Lane& lane, Node& node) {
  if (node.is_leaf()) {
    run_leaf(lane, node);
    return;
  }
  std::vector<Tensor>& grads = lane.grads;
  grads.clear();
  {
    const auto guard = lock();
    PassSlot& slot = slot_of(node);
    for (Tensor& gradient : slot.grads) grads.push_back(std::move(gradient));
    slot.grads.clear();
    slot.pass.store(0, std::memory_order_release);
  }
  std::vector<Tensor>& inputs = lane.inputs;
  inputs.clear();
  inputs.resize(node.edges_.size());
  const StreamView stream = stream_of(lane, node);
  std::optional<StreamGuard> on_stream;
  if (side_streams_) enter_stream(lane, node, stream, on_stream);
  if (!grads.empty()) {
    node.apply(grads, inputs);
    DDP_CHECK(inputs.size() == node.edges_.size(), AutogradError, node.name(), " returned ", inputs.size(),
              " gradients for ", node.edges_.size(), " inputs");
    grads.clear();
  }
  if (!retain_graph_) node.release_saved();

  // All contributions to leaves first and their hooks after: a hook may run a backward of its own, which must
  // not find memory that has been written and not been counted.
  lane.complete.clear();
  const auto local = [&](const Node& target) { return !several() || target.device() == lane.device; };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Node* target = node.edges_[i].node.get();
    if (target == nullptr || !target->is_leaf() || !local(*target)) continue;
    if (contribute(*target, inputs[i])) lane.complete.push_back(target);
    if (side_streams_ && inputs[i].defined()) note_writer(lane, *target, stream);
    inputs[i] = Tensor();
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Node* target = node.edges_[i].node.get();
    if (target == nullptr || (target->is_leaf() && local(*target))) continue;
    deliver(lane, stream, *target, node.edges_[i].index, std::move(inputs[i]));
  }
  for (Node* leaf : lane.complete) finish_leaf(lane, *leaf);
}

void run_backward(const Tensor& root, const Tensor& gradient, bool retain_graph) {
  DDP_CHECK(root.defined(), AutogradError, "backward of an undefined tensor");
  DDP_CHECK(root.requires_grad(), AutogradError, "backward from a tensor of sizes ", root.sizes(),
            " that was not recorded: no input of it requires grad, or it was made with grad mode off");
  Tensor start = gradient;
  if (start.defined()) {
    DDP_CHECK(start.sizes() == root.sizes(), AutogradError, "backward was given a gradient of sizes ", start.sizes(),
              " for a root of sizes ", root.sizes());
    DDP_CHECK(start.dtype() == root.dtype() && start.device() == root.device(), AutogradError,
              "backward was given a gradient of ", start.dtype(), " on ", start.device(), " for a root of ",
              root.dtype(), " on ", root.device());
  } else {
    DDP_CHECK(root.numel() == 1, AutogradError,
              "backward without a gradient needs a root of one element; this one has sizes ", root.sizes());
    start = ones(root.sizes(), root.options());
  }
  AutogradMeta* meta = meta_of(root);
  const bool leaf = meta == nullptr || !meta->node;
  Pass pass(leaf ? IntrusivePtr<Node>(accumulator_of(root)) : meta->node, leaf ? 0 : meta->index, root.device(),
            retain_graph);
  pass.run(std::move(start));
}

void queue_callback(std::function<void()> callback) {
  Pass* pass = Pass::current();
  DDP_CHECK(pass != nullptr, AutogradError, "queue_callback was called outside a backward pass");
  pass->queue_callback(std::move(callback));
}

std::uint64_t current_pass() {
  const Pass* pass = Pass::current();
  return pass == nullptr ? 0 : pass->id();
}

}  // namespace ddp::autograd
