#pragma once

#include <cstdint>

#include "ddp/core/device.h"
#include "tensor/conv.h"

/// The convolutions of cpu/conv*.cpp work on these numbers and plain pointers to row-major data.
namespace ddp::raw::cpu {

struct ConvShape {
  std::int64_t n, c, h, w;  // input
  std::int64_t k, r, s;     // weight: k kernels of r x s
  std::int64_t p, q;        // output
  ConvParams params;
  Device device;

  std::int64_t group_c() const { return c / params.groups; }
  std::int64_t group_k() const { return k / params.groups; }
  /// Elements of one kernel.
  std::int64_t taps() const { return group_c() * r * s; }
};

/// x, weight, bias (may be null) -> y. Any parameters.
template <class T>
void conv_forward(const ConvShape& shape, const T* x, const T* weight, const T* bias, T* y);
template <class T>
void conv_input_grad(const ConvShape& shape, const T* grad, const T* weight, T* x_grad);
/// `strides` of the weight gradient in elements.
template <class T>
void conv_weight_grad(const ConvShape& shape, const T* grad, const T* x, T* weight_grad, const Dims& strides,
                      bool accumulate);

/// Convolution of stride 1 without columns: the rows of B are shifted views of a framed input. `flipped` takes
/// weight [c, k, r, s] with both kernel axes reversed, which is the gradient for the input.
template <class T>
void conv_shifted(const ConvShape& shape, const T* x, const T* weight, bool flipped, const T* bias, T* y);

}  // namespace ddp::raw::cpu
