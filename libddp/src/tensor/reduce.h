#pragma once

#include "ddp/tensor/tensor.h"

/// Raw reductions; rules as in elementwise.h. Sums of float32 and narrower are accumulated in float32
/// pairwise or wider, so the error does not grow with the number of elements in practice.
namespace ddp::raw {

/// Sum over `dims` (all when empty); int64 for whole numbers and bool. The same for any number of threads. With
/// `accumulate`, `out` += the sum.
Tensor sum(const Tensor& x, const Dims& dims, bool keep_dim, const Tensor& out = {}, bool accumulate = false);
/// Largest element along `dim` and its index (int64). Ties: the lowest index. NaN wins.
struct MaxResult {
  Tensor values;
  Tensor indices;
};
MaxResult max(const Tensor& x, std::int64_t dim, bool keep_dim);
/// x summed down to `sizes` (undoing a broadcast). The tensor itself when nothing is to be done and no
/// `out` is given.
Tensor sum_to(const Tensor& x, const Dims& sizes, const Tensor& out = {}, bool accumulate = false);
/// Scatter of `grad` (sizes of `indices`) into zeros of `sizes` along `dim`: gradient of max.
Tensor scatter_by_index(const Tensor& grad, const Tensor& indices, const Dims& sizes, std::int64_t dim, bool kept_dim);
/// Sum of squares over all elements, in float64, as a one-element float64 tensor.
Tensor sum_of_squares(const Tensor& x);
/// Number of elements that are NaN or infinite, as a one-element int64 tensor.
Tensor count_nonfinite(const Tensor& x);

}  // namespace ddp::raw
