#include <algorithm>
#include <array>

#include "data/byte_file.h"
#include "data/hash.h"
#include "ddp/core/error.h"
#include "ddp/data/dataset.h"
#include "tensor/sizes.h"

namespace ddp::data {
namespace {

/// Sum of the two bytes: triangular in (-2, 2), deviation 0.816. The product with a power of two is exact, so
/// that adding the mean rounds once, with or without fused multiply-add: equal on all machines.
float triangular(std::uint16_t bits) { return static_cast<float>((bits & 0xff) + (bits >> 8) - 255) * 0x1p-7F; }

/// Uniform in [-1, 1), multiples of 2^-23.
float uniform(std::uint64_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23F;
}

/// to = mean + noise. One 64-bit hash serves four elements. Hashing (which compilers do not vectorise) and
/// conversion (which they do) take turns over a block that stays in the first-level cache.
void add_noise(std::uint64_t key, const float* mean, std::int64_t numel, float* to) {
  constexpr std::int64_t kBlock = 1024;
  std::array<std::uint16_t, kBlock> bits;
  std::uint64_t state = key;
  for (std::int64_t begin = 0; begin < numel; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - begin);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); i += 4) {
      state += kGoldenGamma;
      const std::uint64_t hash = mix64(state);
      bits[i] = static_cast<std::uint16_t>(hash);
      bits[i + 1] = static_cast<std::uint16_t>(hash >> 16);
      bits[i + 2] = static_cast<std::uint16_t>(hash >> 32);
      bits[i + 3] = static_cast<std::uint16_t>(hash >> 48);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      to[begin + i] = mean[begin + i] + triangular(bits[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace

SyntheticImages::SyntheticImages(std::int64_t count, const Dims& sample_sizes, std::int64_t classes, std::uint64_t seed)
    : count_(count), sizes_(sample_sizes), classes_(classes), seed_(mix64(seed + kGoldenGamma)) {
  DDP_CHECK(count >= 0, InvalidArgument, "SyntheticImages: count is ", count, "; it must be at least 0");
  DDP_CHECK(classes >= 1, InvalidArgument, "SyntheticImages: classes is ", classes, "; it must be at least 1");
  for (const std::int64_t size : sample_sizes) {
    DDP_CHECK(size >= 1, InvalidArgument, "SyntheticImages: sample sizes are ", sample_sizes,
              "; each must be at least 1");
  }
  Dims all = sample_sizes;
  all.insert(0, classes);
  means_.resize(static_cast<std::size_t>(raw::checked_numel(all)));
  for (std::size_t i = 0; i < means_.size(); ++i) means_[i] = uniform(mix64(seed_ ^ (i * kGoldenGamma)));
}

Batch SyntheticImages::get_batch(std::span<const std::int64_t> indices) const {
  check_indices("SyntheticImages", indices, count_);
  const auto batch = static_cast<std::int64_t>(indices.size());
  Dims sizes = sizes_;
  sizes.insert(0, batch);
  Batch result{empty(sizes), empty({batch}, {.dtype = DType::int64})};
  auto* input = result.input.data_ptr<float>();
  auto* target = result.target.data_ptr<std::int64_t>();
  const std::int64_t numel = sizes_.product();
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto index = static_cast<std::uint64_t>(indices[static_cast<std::size_t>(b)]);
    const std::uint64_t key = mix64(~seed_ + (index + 1) * kGoldenGamma);
    const auto label = static_cast<std::int64_t>((key >> 32) % static_cast<std::uint64_t>(classes_));
    target[b] = label;
    const float* mean = means_.data() + label * numel;
    float* to = input + b * numel;
    add_noise(key, mean, numel, to);
  }
  return result;
}

}  // namespace ddp::data
