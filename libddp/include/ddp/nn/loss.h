#pragma once

#include "ddp/autograd/functions.h"
#include "ddp/nn/module.h"

/// Losses as modules; see the functions of the same names.
namespace ddp::nn {

/// logits [N, C] and labels [N] (int64) -> one element.
class CrossEntropyLoss final : public Module {
 public:
  explicit CrossEntropyLoss(const CrossEntropyOptions& options = {}) : options_(options) {}
  Tensor forward(const Tensor& logits, const Tensor& target);
  Tensor operator()(const Tensor& logits, const Tensor& target) { return forward(logits, target); }

 private:
  CrossEntropyOptions options_;
};

/// Mean (or sum) of the squared differences -> one element.
class MSELoss final : public Module {
 public:
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor forward(const Tensor& x, const Tensor& target);
  Tensor operator()(const Tensor& x, const Tensor& target) { return forward(x, target); }

 private:
  Reduction reduction_;
};

}  // namespace ddp::nn
