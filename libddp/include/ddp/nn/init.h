#pragma once

#include <cstdint>

#include "ddp/tensor/random.h"
#include "ddp/tensor/tensor.h"

/// Starting values of parameters. Formulas and defaults are those of PyTorch's torch/nn/init.py. All fill the
/// tensor in place without recording, draw from the default generator of its device unless given one, and throw
/// InvalidArgument for a tensor that is not of floating-point type.
namespace ddp::nn::init {

/// Uniform in [low, high).
void uniform_(const Tensor& tensor, double low = 0, double high = 1, Generator* generator = nullptr);
void normal_(const Tensor& tensor, double mean = 0, double deviation = 1, Generator* generator = nullptr);
void constant_(const Tensor& tensor, double value);
inline void zeros_(const Tensor& tensor) { constant_(tensor, 0); }
inline void ones_(const Tensor& tensor) { constant_(tensor, 1); }

/// Numbers that one output (in) or input (out) is connected to: sizes [out, in, ...] times the kernel's area.
struct Fans {
  std::int64_t in = 0;
  std::int64_t out = 0;
};
/// Throws InvalidArgument for fewer than 2 dimensions.
Fans fans_of(const Tensor& tensor);
enum class FanMode : std::uint8_t { fan_in, fan_out };

/// He et al. 2015 for a leaky ReLU of negative slope `a`: gain = sqrt(2 / (1 + a^2)); uniform within
/// gain * sqrt(3 / fan).
void kaiming_uniform_(const Tensor& tensor, double a = 0, FanMode mode = FanMode::fan_in,
                      Generator* generator = nullptr);
/// The same with a normal of deviation gain / sqrt(fan).
void kaiming_normal_(const Tensor& tensor, double a = 0, FanMode mode = FanMode::fan_in,
                     Generator* generator = nullptr);
/// Glorot and Bengio 2010: uniform within gain * sqrt(6 / (fan_in + fan_out)).
void xavier_uniform_(const Tensor& tensor, double gain = 1, Generator* generator = nullptr);
/// The same with a normal of deviation gain * sqrt(2 / (fan_in + fan_out)).
void xavier_normal_(const Tensor& tensor, double gain = 1, Generator* generator = nullptr);

}  // namespace ddp::nn::init
