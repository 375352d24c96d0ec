#pragma once

#include <cstdint>

#include "ddp/nn/module.h"

namespace ddp::nn {

struct BatchNorm2dOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< weight of the new batch in the running statistics
  bool affine = true;     ///< have weight (ones) and bias (zeros)
  /// Keep running statistics. Off: batch statistics are used in evaluation too.
  bool track_running_stats = true;
  DType dtype = DType::float32;
};

/// Normalises each channel of x [N, C, H, W]. Parameters weight, bias [C]; buffers running_mean, running_var [C]
/// and num_batches_tracked (one int64).
class BatchNorm2d final : public UnaryModule {
 public:
  explicit BatchNorm2d(std::int64_t num_features, const BatchNorm2dOptions& options = {});
  /// Throws InvalidArgument unless x is 4-d with num_features channels.
  Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;
  Tensor running_mean;
  Tensor running_var;
  Tensor num_batches_tracked;

 private:
  std::int64_t num_features_;
  BatchNorm2dOptions options_;
  Tensor one_;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  ///< have weight (ones) and bias (zeros)
  bool bias = true;
  DType dtype = DType::float32;
};

/// Normalises over the last dimensions, whose sizes are `normalized`. Parameters weight, bias of these sizes.
class LayerNorm final : public UnaryModule {
 public:
  explicit LayerNorm(const Dims& normalized, const LayerNormOptions& options = {});
  /// Throws InvalidArgument unless the last sizes of x are `normalized`.
  Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;

 private:
  Dims normalized_;
  double eps_;
};

}  // namespace ddp::nn
