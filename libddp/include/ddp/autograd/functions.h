#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "ddp/tensor/random.h"
#include "ddp/tensor/tensor.h"

/// The differentiable functions. Names, arguments and defaults are PyTorch's; sizes are given for each.
/// Common to all: tensors of one call share dtype and device (scalars excepted), else InvalidArgument;
/// results are recorded when grad mode is on and an input requires grad; work goes to the current stream
/// of the inputs' device and the host is not blocked.
namespace ddp {

// --- arithmetic with broadcasting ---
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
Tensor sub(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
Tensor operator-(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);
Tensor neg(const Tensor& x);
inline Tensor operator-(const Tensor& x) { return neg(x); }

// --- element by element ---
Tensor relu(const Tensor& x);
Tensor gelu(const Tensor& x);  ///< exact: x * Phi(x), with erf
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);

// --- reductions ---
Tensor sum(const Tensor& x);  ///< to one element, 0-d
Tensor sum(const Tensor& x, const Dims& dims, bool keep_dim = false);
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, const Dims& dims, bool keep_dim = false);
struct MaxValues {
  Tensor values;
  Tensor indices;  ///< int64, not differentiable
};
MaxValues max(const Tensor& x, std::int64_t dim, bool keep_dim = false);
Tensor max(const Tensor& x);  ///< over all elements, 0-d

// --- shape: views where strides allow ---
Tensor reshape(const Tensor& x, const Dims& sizes);  ///< one size may be -1
Tensor flatten(const Tensor& x, std::int64_t start_dim = 0, std::int64_t end_dim = -1);
Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b);
Tensor permute(const Tensor& x, const Dims& order);
Tensor expand(const Tensor& x, const Dims& sizes);
Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index);
Tensor unsqueeze(const Tensor& x, std::int64_t dim);
Tensor squeeze(const Tensor& x, std::int64_t dim);
Tensor cat(const std::vector<Tensor>& parts, std::int64_t dim = 0);
Tensor contiguous(const Tensor& x);
Tensor clone(const Tensor& x);
Tensor to(const Tensor& x, DType dtype);
/// Blocks the host between a GPU and CPU memory that is not pinned.
Tensor to(const Tensor& x, Device device, std::source_location where = std::source_location::current());

// --- matrix products ---
Tensor matmul(const Tensor& a, const Tensor& b);
/// x [.., in], weight [out, in], bias [out] or undefined -> [.., out].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// --- convolution and pooling on [N, C, H, W] ---
struct Size2 {
  std::int64_t h = 1;
  std::int64_t w = 1;
  constexpr Size2() = default;
  constexpr Size2(std::int64_t both) : h(both), w(both) {}  // NOLINT(google-explicit-constructor)
  constexpr Size2(std::int64_t height, std::int64_t width) : h(height), w(width) {}
};
struct Conv2dOptions {
  Size2 stride = 1;
  Size2 padding = 0;
  Size2 dilation = 1;
  std::int64_t groups = 1;
};
/// weight [K, C/groups, R, S], bias [K] or undefined.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Conv2dOptions& options = {});
struct Pool2dOptions {
  Size2 stride = 0;  ///< 0: the kernel size
  Size2 padding = 0;
  bool count_include_pad = true;  ///< average only
};
Tensor max_pool2d(const Tensor& x, Size2 kernel, const Pool2dOptions& options = {});
Tensor avg_pool2d(const Tensor& x, Size2 kernel, const Pool2dOptions& options = {});
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 output);

// --- normalisation, regularisation, look-up ---
/// Training statistics over all dimensions but 1; running statistics (may be undefined) are updated in
/// place as running = (1 - momentum) * running + momentum * batch, with the unbiased variance. With
/// `training` false the running statistics are used.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum = 0.1, double eps = 1e-5);
/// Over the last dimensions, whose sizes are `normalized`.
Tensor layer_norm(const Tensor& x, const Dims& normalized, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// Zeroes with probability p and scales the rest by 1/(1-p); the input itself when `training` is false.
Tensor dropout(const Tensor& x, double p, bool training = true, Generator* generator = nullptr);
/// Rows of weight [V, D] at index (int64) -> [.., D]. An index out of range throws InvalidArgument on the CPU; on a
/// GPU it gives a row of NaN (docs/errors.md).
Tensor embedding(const Tensor& index, const Tensor& weight);

// --- softmax and losses ---
Tensor softmax(const Tensor& x, std::int64_t dim);
Tensor log_softmax(const Tensor& x, std::int64_t dim);
enum class Reduction : std::uint8_t { mean, sum };
struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;
};
/// logits [N, C], target [N] int64 in [0, C). A label out of range throws InvalidArgument on the CPU; on a GPU,
/// where asking would block the host, it makes the loss NaN, and the gradient of its row (docs/errors.md).
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

/// Rows whose largest logit is the target; one int64 element; not differentiable.
Tensor count_correct(const Tensor& logits, const Tensor& target);

}  // namespace ddp
