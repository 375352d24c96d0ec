#pragma once

#include <bit>
#include <cstddef>

/// Sizes that cached blocks come in: multiples of 64 bytes up to 256, then four steps per power of two, so at most a
/// quarter of a block is unused; above 1 MiB 32 steps, where gradients and buckets make up most of the memory: at most
/// 3 percent.
namespace ddp::core {

inline constexpr std::size_t kLargestBlock = std::size_t{1} << 62;
inline constexpr std::size_t kSizeClasses = 4 + 12 * 4 + 42 * 32;

/// The smallest class that holds so many bytes, from 1 to kLargestBlock.
constexpr std::size_t size_class(std::size_t bytes) {
  if (bytes <= 256) return (bytes - 1) / 64;
  const auto power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 8 and more
  if (power < 20) return 4 + (power - 8) * 4 + (((bytes - 1) >> (power - 2)) - 4);
  return 4 + 12 * 4 + (power - 20) * 32 + (((bytes - 1) >> (power - 5)) - 32);
}

constexpr std::size_t class_bytes(std::size_t index) {
  if (index < 4) return (index + 1) * 64;
  index -= 4;
  if (index < std::size_t{12} * 4) return (index % 4 + 5) << (index / 4 + 6);
  index -= std::size_t{12} * 4;
  return (index % 32 + 33) << (index / 32 + 15);
}

static_assert(class_bytes(size_class(1)) == 64 && class_bytes(size_class(256)) == 256);
static_assert(class_bytes(size_class(257)) == 320 && class_bytes(size_class(512)) == 512);
static_assert(class_bytes(size_class(1 << 20)) == 1 << 20);
static_assert(class_bytes(size_class((1 << 20) + 1)) == (1 << 20) + (1 << 15));
static_assert(size_class(kLargestBlock) == kSizeClasses - 1 && class_bytes(kSizeClasses - 1) == kLargestBlock);

}  // namespace ddp::core
