#pragma once

#include <string_view>

#include "ddp/tensor/tensor.h"

/// Argument checks that every family of `ddp::raw` shares. All throw InvalidArgument and name the operation.
namespace ddp::raw {

/// `tensor` is defined; `what` is how the text calls it ("input", "weight").
void check_defined(std::string_view operation, std::string_view what, const Tensor& tensor);
/// Both are defined and of one device.
void check_same_device(std::string_view operation, const Tensor& a, const Tensor& b);
/// Both are defined and of one device and dtype.
void check_same_kind(std::string_view operation, const Tensor& a, const Tensor& b);
/// `tensor` is of these sizes; `what` is how the text calls it.
void check_sizes(std::string_view operation, std::string_view what, const Tensor& tensor, const Dims& sizes);
/// `tensor` is defined and of floating-point dtype.
void check_floating(std::string_view operation, const Tensor& tensor);
/// No two elements of `tensor` share an address as far as its strides tell: it may be written.
void check_writable(std::string_view operation, const Tensor& tensor);

/// `out` when defined (after checking its sizes, dtype, device and that it may be written), else a new
/// row-major tensor.
Tensor result(std::string_view operation, const Tensor& out, const Dims& sizes, const TensorOptions& options);

/// How the memory of two tensors lies. `same`: the very same elements in the same order. `maybe`: their
/// address ranges meet (they may still interleave without sharing an element).
enum class Overlap : std::uint8_t { none, same, maybe };
Overlap overlap(const Tensor& a, const Tensor& b);

/// A view of `x` with the sizes it is broadcast to (stride 0 where repeated). Throws when NumPy's rule does
/// not allow it.
Tensor broadcast_to(std::string_view operation, const Tensor& x, const Dims& sizes);

}  // namespace ddp::raw
