#include "data/byte_file.h"
#include "data/hash.h"
#include "ddp/core/error.h"
#include "ddp/data/dataset.h"

namespace ddp::data {
namespace {

/// Sum of two 16-bit uniforms: triangular in (-2, 2), deviation sqrt(2/3). The product with a power of two is
/// exact, so that adding the mean rounds once, with or without fused multiply-add: equal on all machines.
float triangular(std::uint32_t bits) {
  const auto sum = static_cast<std::int32_t>((bits & 0xffffU) + (bits >> 16)) - 65535;
  return static_cast<float>(sum) * 0x1p-15F;
}

/// Uniform in [-1, 1), multiples of 2^-23.
float uniform(std::uint64_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23F;
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
  means_.resize(static_cast<std::size_t>(classes * sample_sizes.product()));
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
    const auto base = static_cast<std::uint32_t>(key);
    // Consecutive counters go through the hash; the odd factor keeps neighbouring samples' counters apart.
    for (std::int64_t i = 0; i < numel; ++i) {
      to[i] = mean[i] + triangular(mix32(base + static_cast<std::uint32_t>(i) * 0x9e3779b1U));
    }
  }
  return result;
}

}  // namespace ddp::data
