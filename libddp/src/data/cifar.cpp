#include <algorithm>
#include <array>
#include <string>

#include "data/byte_file.h"
#include "ddp/core/error.h"
#include "ddp/data/dataset.h"

/// The binary version of https://www.cs.toronto.edu/~kriz/cifar.html: per example one label byte, then 1024 red,
/// 1024 green and 1024 blue bytes, row-major.
namespace ddp::data {
namespace {

constexpr std::int64_t kPlane = 32 * 32;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kPixels = kChannels * kPlane;
constexpr std::int64_t kRecord = 1 + kPixels;
constexpr int kClasses = 10;
constexpr std::array<float, kChannels> kMean = {0.4914F, 0.4822F, 0.4465F};
constexpr std::array<float, kChannels> kDeviation = {0.2470F, 0.2435F, 0.2616F};

}  // namespace

CIFAR10::CIFAR10(const std::filesystem::path& root, Split split) {
  std::error_code ignored;
  const std::filesystem::path inner = root / "cifar-10-batches-bin";
  const std::filesystem::path folder = std::filesystem::is_directory(inner, ignored) ? inner : root;
  std::vector<std::string> names = {"test_batch.bin"};
  if (split == Split::train) {
    names.clear();
    for (int i = 1; i <= 5; ++i) names.push_back("data_batch_" + std::to_string(i) + ".bin");
  }
  for (const std::string& name : names) {
    ByteFile file(folder / name);
    const std::size_t labels_before = labels_.size();
    std::vector<std::uint8_t> records(kRecord * 1024);
    std::int64_t total = 0;
    for (;;) {
      const auto found = static_cast<std::int64_t>(file.read(records));
      total += found;
      for (std::int64_t at = 0; at + kRecord <= found; at += kRecord) {
        labels_.push_back(records[static_cast<std::size_t>(at)]);
        pixels_.insert(pixels_.end(), records.begin() + at + 1, records.begin() + at + kRecord);
      }
      if (found < static_cast<std::int64_t>(records.size())) break;
    }
    DDP_CHECK(total > 0 && total % kRecord == 0, IoError, file.path().string(),
              ": truncated or not CIFAR-10: expected a multiple of ", kRecord, " bytes, found ", total, " (",
              total % kRecord, " beyond ", total / kRecord, " examples)");
    check_labels(std::span(labels_).subspan(labels_before), kClasses, file.path());
  }
}

Batch CIFAR10::get_batch(std::span<const std::int64_t> indices) const {
  check_indices("CIFAR10", indices, size());
  const auto batch = static_cast<std::int64_t>(indices.size());
  Batch result{empty({batch, kChannels, 32, 32}), empty({batch}, {.dtype = DType::int64})};
  auto* input = result.input.data_ptr<float>();
  auto* target = result.target.data_ptr<std::int64_t>();
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t index = indices[static_cast<std::size_t>(b)];
    target[b] = labels_[static_cast<std::size_t>(index)];
    for (std::int64_t c = 0; c < kChannels; ++c) {
      const std::uint8_t* from = pixels_.data() + index * kPixels + c * kPlane;
      float* to = input + b * kPixels + c * kPlane;
      const float scale = 1.0F / (255.0F * kDeviation[static_cast<std::size_t>(c)]);
      const float shift = -kMean[static_cast<std::size_t>(c)] / kDeviation[static_cast<std::size_t>(c)];
      for (std::int64_t i = 0; i < kPlane; ++i) to[i] = static_cast<float>(from[i]) * scale + shift;
    }
  }
  return result;
}

}  // namespace ddp::data
