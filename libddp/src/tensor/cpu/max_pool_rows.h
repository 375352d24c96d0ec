#pragma once

#include <cstdint>
#include <cstring>

/// One row of 2x2 max-pooling at stride 2 without branches.
namespace ddp::raw::cpu {

/// Outputs that are made at a time.
inline constexpr std::int64_t kMaxPoolBlock = 8;

/// `from`: the upper of two input rows at a distance of `width`, `base` its place in the plane. The last block
/// is moved back to end at `outputs`, so some are made twice. Needs outputs >= kMaxPoolBlock.
inline void max_pool_halving_row(const float* from, std::int64_t width, std::int64_t base, std::int64_t outputs,
                                 float* values, std::int32_t* indices) {
  typedef float Two __attribute__((vector_size(64)));
  typedef float One __attribute__((vector_size(32)));
  typedef std::int32_t Index __attribute__((vector_size(32)));
  const Index steps = {0, 2, 4, 6, 8, 10, 12, 14};
  for (std::int64_t j = 0; j < outputs; j += kMaxPoolBlock) {
    if (j + kMaxPoolBlock > outputs) j = outputs - kMaxPoolBlock;
    Two upper;
    Two lower;
    std::memcpy(&upper, from + 2 * j, sizeof(upper));
    std::memcpy(&lower, from + 2 * j + width, sizeof(lower));
    One best = __builtin_shufflevector(upper, upper, 0, 2, 4, 6, 8, 10, 12, 14);
    Index at = steps + static_cast<std::int32_t>(base + 2 * j);
    const Index first = at;
    const auto challenge = [&](const One& value, std::int32_t offset) {
      const Index better = (value > best) | (value != value);  // NaN wins
      best = better ? value : best;
      at = better ? first + offset : at;
    };
    challenge(__builtin_shufflevector(upper, upper, 1, 3, 5, 7, 9, 11, 13, 15), 1);
    challenge(__builtin_shufflevector(lower, lower, 0, 2, 4, 6, 8, 10, 12, 14), static_cast<std::int32_t>(width));
    challenge(__builtin_shufflevector(lower, lower, 1, 3, 5, 7, 9, 11, 13, 15), static_cast<std::int32_t>(width) + 1);
    std::memcpy(values + j, &best, sizeof(best));
    std::memcpy(indices + j, &at, sizeof(at));
  }
}

}  // namespace ddp::raw::cpu
