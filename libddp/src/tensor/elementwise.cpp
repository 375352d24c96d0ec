#include "tensor/elementwise.h"

#include <cmath>
#include <string_view>

#include "tensor/backend/elementwise_backend.h"
#include "tensor/checks.h"
#include "tensor/copy.h"

namespace ddp::raw {

namespace {

std::string_view name_of(Unary op) {
  switch (op) {
    case Unary::neg:
      return "neg";
    case Unary::relu:
      return "relu";
    case Unary::gelu:
      return "gelu";
    case Unary::sigmoid:
      return "sigmoid";
    case Unary::tanh:
      return "tanh";
    case Unary::exp:
      return "exp";
    case Unary::log:
      return "log";
    case Unary::sqrt:
      return "sqrt";
    case Unary::reciprocal:
      return "reciprocal";
    case Unary::abs:
      return "abs";
    case Unary::square:
      return "square";
  }
  return "unary";
}

std::string_view name_of(Binary op) {
  switch (op) {
    case Binary::add:
      return "add";
    case Binary::sub:
      return "sub";
    case Binary::mul:
      return "mul";
    case Binary::div:
      return "div";
  }
  return "binary";
}

void check_arithmetic(std::string_view operation, const Tensor& x, bool floating_only) {
  check_defined(operation, "input", x);
  if (floating_only) {
    check_floating(operation, x);
  } else {
    DDP_CHECK(x.dtype() != DType::boolean, InvalidArgument, operation, ": dtype bool; allowed: every other dtype");
  }
}

// Whole-number tensors take whole-number factors only: anything else would be cut off silently.
void check_scalar(std::string_view operation, const Tensor& x, double scalar) {
  DDP_CHECK(is_floating_point(x.dtype()) || (std::isfinite(scalar) && scalar == std::trunc(scalar)), InvalidArgument,
            operation, ": scalar ", scalar, " with dtype ", x.dtype(), "; allowed: whole numbers");
}

// An input that meets the output's memory without being the output is read from a copy, so that writing
// cannot change what is still to be read.
Tensor apart_from(const Tensor& out, const Tensor& input) {
  return overlap(out, input) == Overlap::maybe ? clone(input) : input;
}

}  // namespace

Tensor unary(Unary op, const Tensor& x) {
  check_arithmetic(name_of(op), x, op != Unary::neg && op != Unary::abs && op != Unary::square);
  const Tensor out = empty(x.sizes(), x.options());
  if (out.numel() != 0) elementwise_backend(x.device()).unary(op, x, out);
  return out;
}

Tensor unary_grad(UnaryGrad op, const Tensor& grad, const Tensor& saved) {
  check_floating("unary_grad", grad);
  check_same_kind("unary_grad", grad, saved);
  check_sizes("unary_grad", "saved", saved, grad.sizes());
  const Tensor out = empty(grad.sizes(), grad.options());
  if (out.numel() != 0) elementwise_backend(grad.device()).unary_grad(op, grad, saved, out);
  return out;
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) {
  const std::string_view operation = name_of(op);
  check_same_kind(operation, a, b);
  check_arithmetic(operation, a, op == Binary::div);
  const Dims sizes = a.sizes() == b.sizes() ? a.sizes() : broadcast_sizes(a.sizes(), b.sizes());
  Tensor target = result(operation, out, sizes, a.options());
  if (target.numel() == 0) return target;
  Tensor left = broadcast_to(operation, a, sizes);
  Tensor right = broadcast_to(operation, b, sizes);
  if (out.defined()) {
    left = apart_from(out, left);
    right = apart_from(out, right);
  }
  elementwise_backend(a.device()).binary(op, left, right, target);
  return target;
}

Tensor binary_scalar(Binary op, const Tensor& x, double scalar, bool reversed) {
  check_arithmetic(name_of(op), x, op == Binary::div);
  check_scalar(name_of(op), x, scalar);
  const Tensor out = empty(x.sizes(), x.options());
  if (out.numel() != 0) elementwise_backend(x.device()).binary_scalar(op, x, scalar, reversed, out);
  return out;
}

void axpy_(const Tensor& y, const Tensor& x, double alpha) {
  check_same_kind("axpy_", y, x);
  check_arithmetic("axpy_", y, false);
  check_scalar("axpy_", y, alpha);
  check_writable("axpy_", y);
  const Tensor source = broadcast_to("axpy_", x, y.sizes());
  if (y.numel() != 0) elementwise_backend(y.device()).axpy(y, apart_from(y, source), alpha);
}

void scale_(const Tensor& x, double factor) {
  check_arithmetic("scale_", x, false);
  check_scalar("scale_", x, factor);
  check_writable("scale_", x);
  if (x.numel() != 0) elementwise_backend(x.device()).binary_scalar(Binary::mul, x, factor, false, x);
}

void mul_(const Tensor& x, const Tensor& other) {
  check_same_kind("mul_", x, other);
  check_arithmetic("mul_", x, false);
  check_writable("mul_", x);
  const Tensor factor = broadcast_to("mul_", other, x.sizes());
  if (x.numel() != 0) elementwise_backend(x.device()).binary(Binary::mul, x, apart_from(x, factor), x);
}

Tensor equal_elements(const Tensor& a, const Tensor& b) {
  check_same_kind("equal_elements", a, b);
  const Dims sizes = broadcast_sizes(a.sizes(), b.sizes());
  const Tensor out = empty(sizes, {DType::boolean, a.device()});
  if (out.numel() != 0) {
    elementwise_backend(a.device())
        .equal_elements(broadcast_to("equal_elements", a, sizes), broadcast_to("equal_elements", b, sizes), out);
  }
  return out;
}

Tensor div_grad_b(const Tensor& grad, const Tensor& a, const Tensor& b) {
  check_floating("div_grad_b", grad);
  check_same_kind("div_grad_b", grad, a);
  check_same_kind("div_grad_b", grad, b);
  const Tensor out = empty(grad.sizes(), grad.options());
  if (out.numel() != 0) {
    elementwise_backend(grad.device())
        .div_grad_b(grad, broadcast_to("div_grad_b", a, grad.sizes()), broadcast_to("div_grad_b", b, grad.sizes()),
                    out);
  }
  return out;
}

}  // namespace ddp::raw
