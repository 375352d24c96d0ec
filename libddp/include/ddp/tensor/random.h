#pragma once

#include <cstdint>

#include "ddp/tensor/tensor.h"

/// Random numbers by counter (Philox4x32-10, Salmon et al., SC 2011): element i of call number c under
/// seed s is a pure function of (s, c, i). Integers and uniforms are bit-equal on every device and for
/// any number of threads; normals are computed in double and agree but for the last rounding.
namespace ddp {

/// A stream of random numbers: a seed and an offset that each call moves on. Not thread safe.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : seed_(seed) {}
  std::uint64_t seed() const { return seed_; }
  std::uint64_t offset() const { return offset_; }
  void set_state(std::uint64_t seed, std::uint64_t offset) {
    seed_ = seed;
    offset_ = offset;
  }
  /// The offset for a call that draws `count` numbers; moves on past them.
  std::uint64_t advance(std::uint64_t count) {
    const std::uint64_t start = offset_;
    offset_ += (count + 3) / 4;
    return start;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t offset_ = 0;  // in Philox blocks of four 32-bit numbers
};

/// The device's default generator, used where a call is given none.
Generator& default_generator(Device device = Device::cpu());
/// Seeds the default generator of every device and sets its offset to 0.
void manual_seed(std::uint64_t seed);

/// Uniform in [0, 1).
Tensor rand(const Dims& sizes, const TensorOptions& options = {}, Generator* generator = nullptr);
/// Normal, mean 0, deviation 1.
Tensor randn(const Dims& sizes, const TensorOptions& options = {}, Generator* generator = nullptr);
/// Whole numbers in [low, high).
Tensor randint(std::int64_t low, std::int64_t high, const Dims& sizes,
               const TensorOptions& options = {.dtype = DType::int64}, Generator* generator = nullptr);

}  // namespace ddp
