#pragma once

#include "tensor/elementwise.h"

/// The CPU implementations of the elementwise family, apart from each other so that each compiles fast.
namespace ddp::raw::cpu {

void unary(Unary op, const Tensor& x, const Tensor& out);
void unary_grad(UnaryGrad op, const Tensor& grad, const Tensor& saved, const Tensor& out);
void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out);
void binary_scalar(Binary op, const Tensor& x, double scalar, bool reversed, const Tensor& out);

}  // namespace ddp::raw::cpu
