#pragma once

#include <cstdint>

#include "tensor/backend/backend.h"
#include "tensor/loss.h"

namespace ddp::raw {

/// Where a call's numbers begin: the generator's seed and the number of the first Philox block. The 32-bit
/// numbers of the blocks are taken in order; w(k) is number k from the first block on.
struct RandomState {
  std::uint64_t seed = 0;
  std::uint64_t block = 0;
};

/// Which numbers each element takes, so that all backends agree. Tensors are row-major, element i in that
/// order. Fractions: m bits of precision are the top m bits of a 32-bit number (float32 24, float16 11,
/// bfloat16 8), and for float64 the top 53 bits of w(2i) * 2^32 + w(2i+1).
class RandomBackend {
 public:
  virtual ~RandomBackend() = default;
  /// x[i] = min(fma(u, high - low, low), largest) rounded to x's dtype; u the fraction in [0, 1) of w(i)
  /// (float64: of two numbers), computed in float32 (float64). `largest` is the last value of x's dtype
  /// below `high`, or `low` when high == low.
  virtual void uniform(const Tensor& x, double /*low*/, double /*high*/, double /*largest*/, RandomState /*state*/) {
    missing("uniform_", x);
  }
  /// Box-Muller, pair j = elements 2j and 2j+1: a = (w(2j) + 1) / 2^32, b = w(2j+1) / 2^32, radius
  /// sqrt(-2 ln a), angle 2 pi b, cosine first. Then times deviation, plus mean.
  virtual void normal(const Tensor& x, double /*mean*/, double /*deviation*/, RandomState /*state*/) {
    missing("normal_", x);
  }
  /// x[i] = low + floor(r * range / 2^64) with r = w(2i) * 2^32 + w(2i+1): every value's probability is
  /// within 2^-64 of 1 / range.
  virtual void randint(const Tensor& x, std::int64_t /*low*/, std::uint64_t /*range*/, RandomState /*state*/) {
    missing("randint_", x);
  }
  /// mask[i] = w(i) >= threshold, y[i] = mask[i] ? x[i] * scale : 0; i counts in row-major order of x, which
  /// may be strided; y and mask are row-major.
  virtual void dropout(const Tensor& /*x*/, std::uint64_t /*threshold*/, double /*scale*/, RandomState /*state*/,
                       const Tensor& y, const Tensor& /*mask*/) {
    missing("dropout", y);
  }
  /// out = mask ? grad * scale : 0.
  virtual void dropout_grad(const Tensor& /*grad*/, const Tensor& /*mask*/, double /*scale*/, const Tensor& out) {
    missing("dropout_grad", out);
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("random", operation, where.device());
  }
};

RandomBackend& cpu_random();
RandomBackend& cuda_random();
inline RandomBackend& random_backend(Device device) { return device.is_cuda() ? cuda_random() : cpu_random(); }

}  // namespace ddp::raw
