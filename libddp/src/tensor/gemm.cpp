#include "tensor/gemm.h"

#include <string_view>

#include "tensor/backend/gemm_backend.h"
#include "tensor/checks.h"
#include "tensor/copy.h"
#include "tensor/reduce.h"
#include "tensor/tensor_impl.h"

namespace ddp::raw {
namespace {

Tensor unsqueezed(const Tensor& x, std::size_t at) {
  Dims sizes = x.sizes();
  Dims strides = x.strides();
  sizes.insert(at, 1);
  strides.insert(at, 0);
  return make_view(x, sizes, strides, x.storage_offset());
}

// [.., n] as [rows, n]: a view where the strides allow it, else a copy.
Tensor as_rows(const Tensor& x) {
  if (x.dim() == 2) return x;
  const std::int64_t columns = x.size(-1);
  const std::int64_t rows =
      columns == 0 ? Dims(std::span(x.sizes().begin(), x.sizes().size() - 1)).product() : x.numel() / columns;
  return reshape(x, {rows, columns});
}

Dims leading(const Dims& sizes) { return Dims(std::span(sizes.begin(), sizes.size() - 2)); }

Dims with_matrix(Dims sizes, std::int64_t rows, std::int64_t columns) {
  sizes.push_back(rows);
  sizes.push_back(columns);
  return sizes;
}

Tensor apart_from(const Tensor& out, const Tensor& input) {
  return overlap(out, input) == Overlap::none ? input : clone(input);
}

// a and b have at least two dimensions; sizes of `out`, where given, are known to fit.
void multiply(const Tensor& a, const Tensor& b, const Tensor& out, bool accumulate) {
  if (out.numel() == 0) return;
  GemmBackend& backend = gemm_backend(out.device());
  // Many row blocks times one matrix are one tall product.
  if (a.dim() > 2 && b.dim() == 2 && a.is_contiguous() && out.is_contiguous()) {
    const std::int64_t rows = out.numel() / out.size(-1);
    backend.matmul(make_view(a, {rows, a.size(-1)}, {a.size(-1), 1}, a.storage_offset()), b,
                   make_view(out, {rows, out.size(-1)}, {out.size(-1), 1}, out.storage_offset()), accumulate);
    return;
  }
  const Dims batch = leading(out.sizes());
  backend.matmul(broadcast_to("matmul", a, with_matrix(batch, a.size(-2), a.size(-1))),
                 broadcast_to("matmul", b, with_matrix(batch, b.size(-2), b.size(-1))), out, accumulate);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& out, bool accumulate) {
  check_same_kind("matmul", a, b);
  check_floating("matmul", a);
  DDP_CHECK(a.dim() > 0 && b.dim() > 0, InvalidArgument, "matmul: sizes ", a.sizes(), " and ", b.sizes(),
            "; both need at least one dimension");
  DDP_CHECK(!accumulate || out.defined(), InvalidArgument, "matmul: accumulate needs `out`");
  const bool row = a.dim() == 1;
  const bool column = b.dim() == 1;
  const Tensor left = row ? unsqueezed(a, 0) : a;
  const Tensor right = column ? unsqueezed(b, 1) : b;
  DDP_CHECK(left.size(-1) == right.size(-2), InvalidArgument, "matmul: inner sizes ", left.size(-1), " and ",
            right.size(-2), " differ (arguments ", a.sizes(), " and ", b.sizes(), ")");
  Dims sizes =
      with_matrix(broadcast_sizes(leading(left.sizes()), leading(right.sizes())), left.size(-2), right.size(-1));
  const std::size_t rank = sizes.size();
  if (column) sizes.erase(rank - 1);
  if (row) sizes.erase(rank - 2);
  const Tensor y = result("matmul", out, sizes, a.options());
  Tensor full = y;
  if (row) full = unsqueezed(full, rank - 2);
  if (column) full = unsqueezed(full, rank - 1);
  multiply(apart_from(y, left), apart_from(y, right), full, accumulate);
  return y;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  check_same_kind("linear", x, weight);
  check_floating("linear", x);
  DDP_CHECK(x.dim() >= 1 && weight.dim() == 2 && x.size(-1) == weight.size(1), InvalidArgument, "linear: input ",
            x.sizes(), " does not fit weight ", weight.sizes(), "; expected input [.., in] and weight [out, in]");
  if (bias.defined()) {
    check_same_kind("linear", x, bias);
    check_sizes("linear", "bias", bias, {weight.size(0)});
  }
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = weight.size(0);
  const Tensor y = empty(sizes, x.options());
  if (y.numel() == 0) return y;
  gemm_backend(x.device()).linear(as_rows(x), weight, bias.defined() ? contiguous(bias) : bias, relu, as_rows(y));
  return y;
}

Tensor linear_weight_grad(const Tensor& grad, const Tensor& x, const Tensor& out, bool accumulate) {
  check_same_kind("linear_weight_grad", grad, x);
  check_floating("linear_weight_grad", x);
  DDP_CHECK(!accumulate || out.defined(), InvalidArgument, "linear_weight_grad: accumulate needs `out`");
  Dims sizes = grad.sizes();
  if (!sizes.empty()) sizes[sizes.size() - 1] = x.dim() > 0 ? x.size(-1) : 0;
  DDP_CHECK(!sizes.empty() && sizes == x.sizes(), InvalidArgument, "linear_weight_grad: gradient ", grad.sizes(),
            " does not fit input ", x.sizes(), "; they must agree in all but the last size");
  const Tensor y = result("linear_weight_grad", out, {grad.size(-1), x.size(-1)}, x.options());
  multiply(transpose(apart_from(y, as_rows(grad)), 0, 1), apart_from(y, as_rows(x)), y, accumulate);
  return y;
}

LinearGrads linear_parameter_grads(const Tensor& grad, const Tensor& x, const Tensor& weight_out,
                                   bool weight_accumulate, const Tensor& bias_out, bool bias_accumulate) {
  check_same_kind("linear_parameter_grads", grad, x);
  check_floating("linear_parameter_grads", x);
  DDP_CHECK(grad.dim() > 0 && x.dim() > 0, InvalidArgument, "linear_parameter_grads: gradient ", grad.sizes(),
            " and input ", x.sizes(), "; both need at least one dimension");
  const Tensor grad_rows = as_rows(grad);
  const Tensor x_rows = as_rows(x);
  DDP_CHECK(grad_rows.size(0) == x_rows.size(0), InvalidArgument, "linear_parameter_grads: gradient ", grad.sizes(),
            " does not fit input ", x.sizes(), "; they must agree in all but the last size");
  const Tensor weight = result("linear_parameter_grads", weight_out, {grad.size(-1), x.size(-1)}, x.options());
  Tensor bias = bias_out;
  if (!bias_accumulate) {
    bias = result("linear_parameter_grads", bias_out, {grad.size(-1)}, x.options());
    const auto apart = [&](const Tensor& out) {
      return overlap(out, grad_rows) == Overlap::none && overlap(out, x_rows) == Overlap::none;
    };
    if (grad.numel() > 0 && x.numel() > 0 && bias.is_contiguous() && apart(weight) && apart(bias) &&
        gemm_backend(x.device()).linear_parameter_grads(grad_rows, x_rows, weight, weight_accumulate, bias)) {
      return {weight, bias};
    }
  }
  sum(grad_rows, {0}, false, bias, bias_accumulate);
  return {linear_weight_grad(grad_rows, x_rows, weight, weight_accumulate), bias};
}

}  // namespace ddp::raw
