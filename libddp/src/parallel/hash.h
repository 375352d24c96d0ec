#pragma once

#include <cstdint>

namespace ddp::parallel {

/// Mixes 64-bit numbers in order (splitmix64's finaliser). Equal on every platform.
class Hash {
 public:
  void add(std::uint64_t number) {
    std::uint64_t x = state_ ^ (number + 0x9e3779b97f4a7c15U + (state_ << 6U) + (state_ >> 2U));
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    state_ = x ^ (x >> 31U);
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x2545f4914f6cdd1dU;
};

}  // namespace ddp::parallel
