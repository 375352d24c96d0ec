#pragma once

#include <array>
#include <cstdint>

/// Philox4x32-10: four 32-bit numbers from a counter and a key. J. K. Salmon, M. A. Moraes, R. O. Dror,
/// D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
namespace ddp::raw {

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// Block number `offset` of a generator with this seed: the seed is the key, the number the low half of the
/// counter.
constexpr PhiloxBlock philox_block(std::uint64_t seed, std::uint64_t offset) {
  return philox4x32_10({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32U), 0, 0},
                       {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
}

}  // namespace ddp::raw
