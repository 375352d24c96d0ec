#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// Element-by-element arithmetic. Common to all kernels of this directory: they queue on `stream` of the current
/// device, never block, and return the launch's error, or cudaErrorInvalidValue for a type or size that they do
/// not take. Zero elements launch nothing; each call is otherwise one launch unless it says more. Arithmetic on
/// float16 and bfloat16 is done in float and rounded once; whole numbers wrap around. Here all arrays have
/// `type` and the sizes `sizes`; an input is the very memory of `out`, with equal strides, or does not meet it.
namespace ddp::kernels {

enum class Unary : std::uint8_t { neg, relu, gelu, sigmoid, tanh, exp, log, sqrt, reciprocal, abs, square };
enum class UnaryGrad : std::uint8_t { relu, gelu, sigmoid, tanh, exp, log, sqrt };
enum class Binary : std::uint8_t { add, sub, mul, div };

/// Floating point; neg, abs and square take whole numbers too. relu keeps NaN.
cudaError_t unary(Unary op, const Array& out, const ConstArray& x, const Sizes& sizes, Type type, cudaStream_t stream);

/// `saved` is the function's result for relu, sigmoid, tanh, exp, sqrt and its argument for gelu, log.
cudaError_t unary_grad(UnaryGrad op, const Array& out, const ConstArray& grad, const ConstArray& saved,
                       const Sizes& sizes, Type type, cudaStream_t stream);

/// All types but bool; div floating point only.
cudaError_t binary(Binary op, const Array& out, const ConstArray& a, const ConstArray& b, const Sizes& sizes, Type type,
                   cudaStream_t stream);

/// op(x, scalar), or op(scalar, x) with `reversed`.
cudaError_t binary_scalar(Binary op, const Array& out, const ConstArray& x, double scalar, bool reversed,
                          const Sizes& sizes, Type type, cudaStream_t stream);

/// out = a + alpha * b. Floating types: rounded as one fused multiply-add when alpha is not 1.
cudaError_t add_scaled(const Array& out, const ConstArray& a, const ConstArray& b, double alpha, const Sizes& sizes,
                       Type type, cudaStream_t stream);

/// out (bool) = a == b, for every type.
cudaError_t equal_elements(const Array& out, const ConstArray& a, const ConstArray& b, const Sizes& sizes, Type type,
                           cudaStream_t stream);

/// out = -grad * a / (b * b), floating point.
cudaError_t div_grad_b(const Array& out, const ConstArray& grad, const ConstArray& a, const ConstArray& b,
                       const Sizes& sizes, Type type, cudaStream_t stream);

}  // namespace ddp::kernels
