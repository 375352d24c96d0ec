#pragma once

#include <cstdint>

#include "ddp/autograd/functions.h"
#include "ddp/nn/module.h"

namespace ddp::nn {

struct Conv2dOptions {
  Size2 stride = 1;
  Size2 padding = 0;
  Size2 dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  DType dtype = DType::float32;
};

/// x [N, in, H, W] -> [N, out, P, Q]. Parameters: weight [out, in/groups, R, S], bias [out], both uniform
/// within 1/sqrt(in/groups * R * S).
class Conv2d final : public UnaryModule {
 public:
  /// Throws InvalidArgument unless groups divides both channel counts.
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2 kernel, const Conv2dOptions& options = {});
  /// Throws InvalidArgument unless x is 4-d with in_channels channels.
  Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;  ///< undefined without bias

 private:
  std::int64_t in_channels_;
  ddp::Conv2dOptions options_;
};

}  // namespace ddp::nn
