// Which streams of a device a backward pass uses. A node runs on the stream that was current when its operation was
// recorded, as what it has saved is ready there. The caller's current stream comes before all of them, through the root
// gradient, and after all of them at the end. While every node was recorded on its lane's stream, nothing here is done.
#include <algorithm>

#include "autograd/accumulate_grad.h"
#include "autograd/pass.h"

namespace ddp::autograd {

/// The caller's stream for the node's device.
StreamView Pass::ambient(const Lane& lane, const Node& node) const {
  // In a pass inside another one, a lane has nodes of all devices and runs on the thread that this is.
  return node.device() == lane.device ? lane.stream : current_stream(node.device());
}

StreamView Pass::stream_of(const Lane& lane, const Node& node) const {
  return side_streams_ && !node.is_leaf() ? node.stream() : ambient(lane, node);
}

/// Makes the node's stream the current one, after those that have written to the same gradients in this pass.
void Pass::enter_stream(Lane& lane, const Node& node, StreamView stream, std::optional<StreamGuard>& guard) {
  if (stream.device().is_cpu()) return;
  if (!(stream == current_stream(stream.device()))) guard.emplace(stream);
  auto& sides = lane.side_streams;
  if (!(stream == ambient(lane, node)) && std::find(sides.begin(), sides.end(), stream) == sides.end()) {
    sides.push_back(stream);
  }
  for (const Edge& edge : node.edges()) {
    if (edge.node && edge.node->is_leaf() && edge.node->device() == stream.device()) after_writer(*edge.node, stream);
  }
}

void Pass::after_writer(Node& leaf, StreamView stream) {
  if (stream.device().is_cpu()) return;
  CUstream_st* writer = nullptr;
  {
    const auto guard = lock();
    const PassSlot& slot = slot_of(leaf);
    if (!slot.written) return;
    writer = slot.writer;
  }
  stream.wait_for(StreamView(stream.device(), writer));
}

void Pass::note_writer(const Lane& lane, Node& leaf, StreamView stream) {
  if (stream.device().is_cpu()) return;
  const auto guard = lock();
  PassSlot& slot = slot_of(leaf);
  slot.written = true;
  slot.writer = stream.native();
  // The gradient may be memory of that stream's; the caller's stream uses it from the end of the pass on.
  const Tensor& memory = static_cast<AccumulateGrad&>(leaf).memory();
  if (memory.defined()) memory.impl()->storage()->used_on(ambient(lane, leaf));
}

/// `to` may use a gradient that `from` has made, perhaps by a copy that this thread has queued elsewhere.
void Pass::make_ready(const Tensor& gradient, StreamView from, StreamView to) const {
  if (!gradient.defined() || to.device().is_cpu()) return;
  const StreamView here = current_stream(to.device());
  if (from.device().is_cuda()) to.wait_for(from);
  if (!(here == from)) to.wait_for(here);
  gradient.impl()->storage()->used_on(to);
}

void Pass::join_streams() {
  for (std::size_t i = 0; i < num_lanes_; ++i) {
    for (const StreamView side : lanes_[i]->side_streams) {
      const StreamView caller = side.device() == lanes_[i]->device ? lanes_[i]->stream : current_stream(side.device());
      caller.wait_for(side);
    }
  }
}

}  // namespace ddp::autograd
