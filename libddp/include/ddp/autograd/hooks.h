#pragma once

#include <cstdint>
#include <functional>

#include "ddp/tensor/tensor.h"

namespace ddp {

/// Runs `hook` with the complete gradient of a leaf once per backward that reaches it, on the thread that
/// runs backward for the leaf's device. Throws AutogradError unless the tensor is a leaf that requires grad.
std::uint64_t register_gradient_hook(const Tensor& leaf, std::function<void(const Tensor& gradient)> hook);
/// Removes it; an unknown id is ignored.
void remove_gradient_hook(const Tensor& leaf, std::uint64_t id);

}  // namespace ddp
