#pragma once

#include "ddp/tensor/tensor.h"

/// Raw normalisations; rules as in elementwise.h. Statistics of float16 and bfloat16 inputs are float32.
namespace ddp::raw {

struct NormResult {
  Tensor y;
  Tensor mean;    // saved for backward
  Tensor invstd;  // 1 / sqrt(variance + eps), biased variance
};
/// Where a gradient goes: undefined for a new tensor, else written there or, with `accumulate`, added.
struct Into {
  Tensor out;
  bool accumulate = false;
};
struct NormGrads {
  Tensor x;
  Tensor weight;
  Tensor bias;
};

/// Training: statistics over all dimensions but 1, biased variance; returns also the unbiased variance for
/// the running average through `unbiased_variance` when given. weight and bias may be undefined.
NormResult batch_norm_train(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                            Tensor* unbiased_variance);
/// Evaluation with given statistics.
Tensor batch_norm_eval(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                       const Tensor& variance, double eps);
NormGrads batch_norm_train_grad(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                                const Tensor& invstd, const Into& weight_into = {}, const Into& bias_into = {});
NormGrads batch_norm_eval_grad(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                               const Tensor& variance, double eps, const Into& weight_into = {},
                               const Into& bias_into = {});

/// Over the last `weight.dim()` (or `normalized` when weight is undefined) dimensions.
NormResult layer_norm(const Tensor& x, const Dims& normalized, const Tensor& weight, const Tensor& bias, double eps);
NormGrads layer_norm_grad(const Tensor& grad, const Tensor& x, const Dims& normalized, const Tensor& weight,
                          const Tensor& mean, const Tensor& invstd, const Into& weight_into = {},
                          const Into& bias_into = {});

}  // namespace ddp::raw
