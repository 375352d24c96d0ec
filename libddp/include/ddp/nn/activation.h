#pragma once

#include "ddp/nn/module.h"

/// Activations as modules; see the functions of the same names.
namespace ddp::nn {

class ReLU final : public UnaryModule {
 public:
  Tensor forward(const Tensor& x) override;
};

/// The exact form, with erf.
class GELU final : public UnaryModule {
 public:
  Tensor forward(const Tensor& x) override;
};

class Sigmoid final : public UnaryModule {
 public:
  Tensor forward(const Tensor& x) override;
};

class Tanh final : public UnaryModule {
 public:
  Tensor forward(const Tensor& x) override;
};

}  // namespace ddp::nn
