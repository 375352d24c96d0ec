#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// Random numbers by counter, Philox4x32-10, and dropout. Rules as in elementwise.h. Which numbers an element takes
/// says the library's random_backend.h: element i of a row-major array those of its own, so that results do not
/// depend on the launch. All but `normal` give the bits of the CPU.
namespace ddp::kernels {

/// Seed and number of the first block of four 32-bit numbers.
struct Philox {
  std::uint64_t seed = 0;
  std::uint64_t block = 0;
};

/// x[i] = min(fma(u, high - low, low), largest), u in [0, 1) with the bits that the type holds.
cudaError_t uniform(void* x, Type type, std::int64_t count, double low, double high, double largest, Philox state,
                    cudaStream_t stream);

/// Normal numbers by Box-Muller, computed in float64 for every type: one that is narrower is so the CPU's but for
/// ties of the last rounding, and models start from the same weights on every device.
cudaError_t normal(void* x, Type type, std::int64_t count, double mean, double deviation, Philox state,
                   cudaStream_t stream);

/// x[i] = low + floor(r * range / 2^64), r of 64 bits; every type.
cudaError_t randint(void* x, Type type, std::int64_t count, std::int64_t low, std::uint64_t range, Philox state,
                    cudaStream_t stream);

/// mask[i] = number i >= threshold, y[i] = mask[i] ? x[i] * scale : 0. y and mask are row-major, i counts in
/// row-major order of x.
cudaError_t dropout(void* y, std::uint8_t* mask, const ConstArray& x, const Sizes& sizes, Type type,
                    std::uint64_t threshold, double scale, Philox state, cudaStream_t stream);

/// out[i] = mask[i] ? grad[i] * scale : 0.
cudaError_t dropout_grad(const Array& out, const ConstArray& grad, const ConstArray& mask, const Sizes& sizes,
                         Type type, double scale, cudaStream_t stream);

}  // namespace ddp::kernels
