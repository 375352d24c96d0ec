#pragma once

#include <functional>

#include "autograd/node.h"

namespace ddp::autograd {

/// Runs backward from `root`. Nodes run in order of falling sequence number once all their gradients are
/// in; those of the caller's device on the caller, those of each other device on that device's persistent
/// worker. The first exception ends the pass and is rethrown here; end-of-pass callbacks are dropped then.
///
/// Re-entrant: a backward inside a hook or backward function runs all its nodes on the thread that calls it,
/// whatever their device, since a worker that waited for another worker could wait for itself.
void run_backward(const Tensor& root, const Tensor& gradient, bool retain_graph);

/// Runs `callback` on the calling thread at the end of the backward that is running on this thread.
/// Throws AutogradError outside one.
void queue_callback(std::function<void()> callback);

/// Number of the backward pass running on this thread, 0 outside; unique in the process.
std::uint64_t current_pass();

}  // namespace ddp::autograd
