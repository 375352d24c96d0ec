#pragma once

#include "ddp/nn/module.h"
#include "ddp/tensor/random.h"

namespace ddp::nn {

/// In training: zeroes each element with probability p and scales the rest by 1/(1-p). In evaluation: the input
/// itself. Draws from `generator`, which must outlive the module, or from the device's default one.
class Dropout final : public UnaryModule {
 public:
  /// Throws InvalidArgument unless 0 <= p < 1.
  explicit Dropout(double p = 0.5, Generator* generator = nullptr);
  Tensor forward(const Tensor& x) override;

 private:
  double p_;
  Generator* generator_;
};

}  // namespace ddp::nn
