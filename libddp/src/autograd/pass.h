#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "autograd/node.h"
#include "ddp/core/stream.h"

namespace ddp::autograd {

/// One backward pass: counts what each node waits for, then runs the nodes. Lives on the caller's stack.
///
/// With one device (or inside another pass) everything is done by the calling thread without a lock. With
/// several, each device has a lane: a heap of ready nodes that one thread empties. Slots of nodes and the
/// heaps are then guarded by `mutex_`; a leaf's memory is only touched by its lane's thread.
class Pass {
 public:
  Pass(IntrusivePtr<Node> root, std::uint32_t root_index, Device device, bool retain_graph);
  ~Pass();
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// Runs everything; rethrows the first exception.
  void run(Tensor gradient);
  void queue_callback(std::function<void()> callback);
  std::uint64_t id() const { return id_; }
  /// Runs what is ready on a lane that belongs to a worker. Called by that worker.
  void drain(std::size_t lane) noexcept;

  /// The pass that the calling thread works for, null outside one.
  static Pass*& current() noexcept;

 private:
  struct Ready {
    std::uint64_t priority;
    Node* node;
    friend bool operator<(const Ready& a, const Ready& b) { return a.priority < b.priority; }
  };
  struct Lane {
    Device device;
    StreamView stream{Device{}};  // the caller's current one: work of the pass is ordered in it
    std::vector<Ready> heap;
    bool scheduled = false;  // a worker has been told and has not come back
    // Scratch of the lane's thread.
    std::vector<Tensor> grads;
    std::vector<Tensor> inputs;
    std::vector<Tensor> none;
    std::vector<Node*> complete;
    std::vector<StreamView> side_streams;  // others that nodes of this lane have run on
  };
  /// What grows with the graph. Kept by the calling thread from pass to pass, one for each depth of passes within
  /// passes, so that a backward like the last one takes no memory.
  struct Workspace {
    Workspace* next = nullptr;  // of those kept
    std::vector<std::unique_ptr<Lane>> lanes;
    std::vector<Node*> visited;
    std::vector<std::function<void()>> callbacks;
  };
  struct Workspaces;  // those of a thread

  void add_lane(Device device);
  void count_dependencies();
  PassSlot& slot_of(Node& node);
  std::size_t lane_of(const Node& node);
  bool claim(Node& node);
  void run_caller();
  void run_node(Lane& lane, Node& node);
  void run_leaf(Lane& lane, Node& node);
  /// `from` is the stream that has made the gradient.
  void deliver(Lane& lane, StreamView from, Node& target, std::uint32_t index, Tensor gradient);
  /// Counts one contribution of a leaf of this lane; true when it was the last.
  bool contribute(Node& leaf, const Tensor& gradient);
  void finish_leaf(Lane& lane, Node& leaf);
  // Streams: see streams.cpp.
  StreamView ambient(const Lane& lane, const Node& node) const;
  StreamView stream_of(const Lane& lane, const Node& node) const;
  void enter_stream(Lane& lane, const Node& node, StreamView stream, std::optional<StreamGuard>& guard);
  void after_writer(Node& leaf, StreamView stream);
  void note_writer(const Lane& lane, Node& leaf, StreamView stream);
  void make_ready(const Tensor& gradient, StreamView from, StreamView to) const;
  void join_streams();
  void push(std::size_t lane, Node& node);
  bool several() const { return num_lanes_ > 1; }
  std::unique_lock<std::mutex> lock();
  void fail(std::exception_ptr error) noexcept;

  const std::uint64_t id_;
  const IntrusivePtr<Node> root_;
  const std::uint32_t root_index_;
  const bool retain_graph_;
  Pass* const outer_;
  Workspace* const workspace_;
  bool side_streams_ = false;                  // a node was recorded on another stream than its lane's
  std::size_t num_lanes_ = 0;                  // of those in the workspace
  std::vector<std::unique_ptr<Lane>>& lanes_;  // [0]: the caller's
  std::vector<Node*>& visited_;                // all nodes of the pass; the root keeps them alive
  std::vector<std::function<void()>>& callbacks_;
  std::unordered_map<Node*, PassSlot> overflow_;  // nodes whose own slot an outer pass is using
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr error_;
};

/// Has the persistent worker of `device` call `pass.drain(lane)`. Starts the worker on first use.
void wake_worker(Device device, Pass& pass, std::size_t lane);

}  // namespace ddp::autograd
