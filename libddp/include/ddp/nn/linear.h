#pragma once

#include <cstdint>

#include "ddp/nn/module.h"

namespace ddp::nn {

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::float32;
};

/// x [.., in] -> x W^T + b [.., out]. Parameters: weight [out, in], bias [out], both uniform within
/// 1/sqrt(in).
class Linear final : public UnaryModule {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {});
  /// Throws InvalidArgument when the last size of x is not in_features.
  Tensor forward(const Tensor& x) override;

  Tensor weight;
  Tensor bias;  ///< undefined without bias

 private:
  std::int64_t in_features_;
};

}  // namespace ddp::nn
