#pragma once

#include <cstdint>

#include "ddp/tensor/tensor.h"

/// Raw operations (no tape) that treat every element alike. Common rules of `ddp::raw`: arguments are
/// checked and a wrong one throws InvalidArgument naming the sizes or dtypes; inputs may be strided and
/// broadcast; a result given as `out` is written in place (beta 0, or added to with `accumulate`), else a
/// new row-major tensor is made; work goes to the current stream of the inputs' device; float16 and
/// bfloat16 are computed in float32. An input may be the output or overlap it: the result is as if all
/// inputs were read first. Writing to a tensor whose elements share memory (an expanded one) is refused.
/// Arithmetic on whole numbers wraps around and takes whole-number scalars only. None of these functions
/// raises the version of what it changes: the Tensor members and the optimisers do.
namespace ddp::raw {

enum class Unary : std::uint8_t { neg, relu, gelu, sigmoid, tanh, exp, log, sqrt, reciprocal, abs, square };
enum class Binary : std::uint8_t { add, sub, mul, div };
/// Gradient of a unary function from the gradient of its result and one saved tensor, which is the
/// function's result for relu, sigmoid, tanh, exp, sqrt and its argument for gelu, log.
enum class UnaryGrad : std::uint8_t { relu, gelu, sigmoid, tanh, exp, log, sqrt };

Tensor unary(Unary op, const Tensor& x);  ///< floating point; neg, abs and square take integers too
Tensor unary_grad(UnaryGrad op, const Tensor& grad, const Tensor& saved);
/// Both of one dtype (no promotion); sizes broadcast. Division of integers is refused.
Tensor binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out = {});
/// op(x, scalar), or op(scalar, x) with `reversed`.
Tensor binary_scalar(Binary op, const Tensor& x, double scalar, bool reversed = false);
/// y += alpha * x (x broadcast to y).
void axpy_(const Tensor& y, const Tensor& x, double alpha);
/// x *= factor, or x *= other.
void scale_(const Tensor& x, double factor);
void mul_(const Tensor& x, const Tensor& other);
/// 1 where equal, as a bool tensor.
Tensor equal_elements(const Tensor& a, const Tensor& b);
/// d(a/b)/db times grad: -grad * a / (b*b).
Tensor div_grad_b(const Tensor& grad, const Tensor& a, const Tensor& b);

}  // namespace ddp::raw
