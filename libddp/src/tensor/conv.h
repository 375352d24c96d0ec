#pragma once

#include <cstdint>

#include "ddp/tensor/tensor.h"

/// Raw 2-d convolution and pooling on [N, C, H, W]; rules as in elementwise.h. Output sizes by PyTorch's
/// formula: floor((in + 2*padding - dilation*(kernel-1) - 1) / stride) + 1.
namespace ddp::raw {

struct Pair {
  std::int64_t h = 1;
  std::int64_t w = 1;
};
struct ConvParams {
  Pair stride{1, 1};
  Pair padding{0, 0};
  Pair dilation{1, 1};
  std::int64_t groups = 1;
};

/// x [N, C, H, W], weight [K, C/groups, R, S], bias [K] or undefined -> [N, K, P, Q].
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvParams& params);
Tensor conv2d_input_grad(const Tensor& grad, const Tensor& weight, const Dims& input_sizes, const ConvParams& params);
Tensor conv2d_weight_grad(const Tensor& grad, const Tensor& x, const Dims& weight_sizes, const ConvParams& params,
                          const Tensor& out = {}, bool accumulate = false);
/// Sum of grad [N, K, P, Q] over N, P, Q -> [K].
Tensor conv2d_bias_grad(const Tensor& grad, const Tensor& out = {}, bool accumulate = false);

struct PoolParams {
  Pair kernel{1, 1};
  Pair stride{1, 1};
  Pair padding{0, 0};
  bool count_include_pad = true;  // average only
};
/// Values, and for each the flat index (int32) inside its H*W plane.
struct MaxPoolResult {
  Tensor values;
  Tensor indices;
};
MaxPoolResult max_pool2d(const Tensor& x, const PoolParams& params);
/// `indices` and `params` as of the forward call.
Tensor max_pool2d_grad(const Tensor& grad, const Tensor& indices, const Dims& input_sizes, const PoolParams& params);
Tensor avg_pool2d(const Tensor& x, const PoolParams& params);
Tensor avg_pool2d_grad(const Tensor& grad, const Dims& input_sizes, const PoolParams& params);
/// Output row i averages input rows [floor(i*H/P), ceil((i+1)*H/P)), columns likewise.
Tensor adaptive_avg_pool2d(const Tensor& x, Pair output);
Tensor adaptive_avg_pool2d_grad(const Tensor& grad, const Dims& input_sizes);

}  // namespace ddp::raw
