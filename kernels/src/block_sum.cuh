#pragma once

#include "rows.cuh"

/// One number from all threads of a launch, always added in the same order.
namespace ddp::kernels {

inline constexpr unsigned kMostPartials = 1024;

/// Blocks that share a sum over rows, `together` of which a block takes at a time. Up to four rounds of one block
/// cost less than a second launch.
inline unsigned summing_blocks(std::int64_t rows, std::int64_t together, std::int64_t together_alone) {
  if (rows <= 4 * together_alone) return 1;
  const unsigned blocks = blocks_of(rows, together);
  return blocks < kMostPartials ? blocks : kMostPartials;
}

/// Threads of the only block: no more than the rows need.
inline unsigned threads_alone(std::int64_t threads_needed, unsigned most) {
  const std::int64_t warps = (threads_needed + 31) / 32;
  return warps < 1 ? 32U : warps * 32 < most ? static_cast<unsigned>(warps * 32) : most;
}

/// Sums `part` over the block; the only block writes out = sum / divisor, one of many its partial sum.
template <class Out>
__device__ void leave_sum(double part, Out* out, double* partials, double divisor) {
  __shared__ double room[32];
  part = merged_block<SumOf<double>>(part, room);
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) {
    *out = Convert<Out, double>::apply(part / divisor);
  } else {
    partials[blockIdx.x] = part;
  }
}

}  // namespace ddp::kernels
