#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "ddp/tensor/tensor.h"

/// Examples in.
namespace ddp::data {

/// A batch: inputs [B, ...] and targets [B].
struct Batch {
  Tensor input;
  Tensor target;
};

/// Examples by index. `get_batch` must be thread safe: loader threads call it at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// The examples of these indices, on the CPU, as new tensors.
  virtual Batch get_batch(std::span<const std::int64_t> indices) const = 0;
};

/// Inputs [N, ...] and int64 targets [N] kept in memory.
class TensorDataset : public Dataset {
 public:
  TensorDataset(Tensor inputs, Tensor targets);
  std::int64_t size() const override;
  Batch get_batch(std::span<const std::int64_t> indices) const override;

 private:
  Tensor inputs_;
  Tensor targets_;
};

enum class Split : std::uint8_t { train, test };

/// An IDX file (plain or gzip): sizes and bytes. Throws IoError naming file, and what is wrong: missing, bad magic
/// number, truncated (bytes expected and found), trailing bytes.
struct IdxFile {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> bytes;
};
IdxFile read_idx(const std::filesystem::path& path);

/// 28x28 grey images and labels 0-9 in four IDX files, `.gz` or not: MNIST and Fashion-MNIST. Inputs are
/// float32 [B, 1, 28, 28], (pixel/255 - mean) / deviation with the training set's mean and deviation.
class IdxImages : public Dataset {
 public:
  IdxImages(const std::filesystem::path& root, Split split, float mean, float deviation);
  std::int64_t size() const override { return count_; }
  Batch get_batch(std::span<const std::int64_t> indices) const override;

 private:
  std::int64_t count_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
  float scale_ = 1;
  float shift_ = 0;
};

class FashionMNIST final : public IdxImages {
 public:
  explicit FashionMNIST(const std::filesystem::path& root, Split split = Split::train)
      : IdxImages(root, split, 0.2860F, 0.3530F) {}
};
class MNIST final : public IdxImages {
 public:
  explicit MNIST(const std::filesystem::path& root, Split split = Split::train)
      : IdxImages(root, split, 0.1307F, 0.3081F) {}
};
/// Where the dataset is: DDP_DATA_DIR if set, else /usr/share/datasets/fashion-mnist (Debian's package
/// dataset-fashion-mnist). Throws IoError that names both when neither has it.
std::filesystem::path fashion_mnist_root();

/// The binary CIFAR-10: data_batch_1..5.bin and test_batch.bin, 3073 bytes an example. Inputs float32 [B, 3, 32, 32].
class CIFAR10 final : public Dataset {
 public:
  explicit CIFAR10(const std::filesystem::path& root, Split split = Split::train);
  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  Batch get_batch(std::span<const std::int64_t> indices) const override;

 private:
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

/// Made-up images that can be learnt: class means plus noise, the same for the same seed on every machine.
class SyntheticImages final : public Dataset {
 public:
  SyntheticImages(std::int64_t count, const Dims& sample_sizes, std::int64_t classes, std::uint64_t seed = 0);
  std::int64_t size() const override { return count_; }
  Batch get_batch(std::span<const std::int64_t> indices) const override;

 private:
  std::int64_t count_;
  Dims sizes_;
  std::int64_t classes_;
  std::uint64_t seed_;
  Tensor means_;
};

}  // namespace ddp::data
