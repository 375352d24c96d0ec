#pragma once

#include "ddp/autograd/functions.h"
#include "ddp/nn/module.h"

/// Pooling on [N, C, H, W] and flattening; see the functions of the same names.
namespace ddp::nn {

/// Largest element of each window. Stride 0 (the default) is the kernel's size.
class MaxPool2d final : public UnaryModule {
 public:
  explicit MaxPool2d(Size2 kernel, const Pool2dOptions& options = {}) : kernel_(kernel), options_(options) {}
  Tensor forward(const Tensor& x) override;

 private:
  Size2 kernel_;
  Pool2dOptions options_;
};

/// Mean of each window.
class AvgPool2d final : public UnaryModule {
 public:
  explicit AvgPool2d(Size2 kernel, const Pool2dOptions& options = {}) : kernel_(kernel), options_(options) {}
  Tensor forward(const Tensor& x) override;

 private:
  Size2 kernel_;
  Pool2dOptions options_;
};

/// Mean over windows chosen so that the output is `output` high and wide.
class AdaptiveAvgPool2d final : public UnaryModule {
 public:
  explicit AdaptiveAvgPool2d(Size2 output) : output_(output) {}
  Tensor forward(const Tensor& x) override;

 private:
  Size2 output_;
};

/// Joins the dimensions start..end to one; all but the first by default.
class Flatten final : public UnaryModule {
 public:
  explicit Flatten(std::int64_t start_dim = 1, std::int64_t end_dim = -1) : start_(start_dim), end_(end_dim) {}
  Tensor forward(const Tensor& x) override;

 private:
  std::int64_t start_;
  std::int64_t end_;
};

}  // namespace ddp::nn
