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

/// Examples by index. `get_batch` must be thread safe: loader threads call it at once. The bundled datasets
/// throw InvalidArgument for an index outside [0, size()).
class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset(Dataset&&) = default;
  Dataset& operator=(const Dataset&) = default;
  Dataset& operator=(Dataset&&) = default;
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// The examples of these indices, on the CPU, as new tensors.
  virtual Batch get_batch(std::span<const std::int64_t> indices) const = 0;
};

/// Inputs [N, ...] and targets [N, ...] (usually int64 [N]) kept in memory on the CPU.
class TensorDataset : public Dataset {
 public:
  /// Throws InvalidArgument unless both are on the CPU and have the same, at least one-dimensional, first size.
  TensorDataset(const Tensor& inputs, const Tensor& targets);
  std::int64_t size() const override;
  Batch get_batch(std::span<const std::int64_t> indices) const override;

 private:
  Tensor inputs_;
  Tensor targets_;
};

enum class Split : std::uint8_t { train, test };

/// An IDX file of unsigned bytes.
struct IdxFile {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> bytes;
};
/// Reads one, plain or gzip (told apart by content). Throws IoError naming the file and what is wrong: missing, bad
/// magic number, element type other than unsigned byte, truncated (bytes expected and found), trailing bytes.
IdxFile read_idx(const std::filesystem::path& path);

/// Grey images and labels 0-9 in four IDX files, `.gz` or not (plain is preferred): MNIST and Fashion-MNIST.
/// Inputs are float32 [B, 1, rows, columns] (28x28 in both sets), (pixel/255 - mean) / deviation.
class IdxImages : public Dataset {
 public:
  /// Throws IoError for a file that is missing, damaged, holds a label above 9 (label, its index and the file), or
  /// when the numbers of images and labels differ.
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

/// Normalised by the training set's mean and deviation, 0.2860 and 0.3530.
class FashionMNIST final : public IdxImages {
 public:
  explicit FashionMNIST(const std::filesystem::path& root, Split split = Split::train)
      : IdxImages(root, split, 0.2860F, 0.3530F) {}
};
/// Normalised by the training set's mean and deviation, 0.1307 and 0.3081.
class MNIST final : public IdxImages {
 public:
  explicit MNIST(const std::filesystem::path& root, Split split = Split::train)
      : IdxImages(root, split, 0.1307F, 0.3081F) {}
};
/// Where the dataset is: DDP_DATA_DIR if set (strictly: a set variable is not overruled), else
/// /usr/share/datasets/fashion-mnist (Debian's package dataset-fashion-mnist). Throws IoError that names the
/// folder without it and the other possibility.
std::filesystem::path fashion_mnist_root();

/// The binary CIFAR-10: data_batch_1..5.bin and test_batch.bin in `root` or in root/cifar-10-batches-bin, 3073 bytes
/// an example. Inputs float32 [B, 3, 32, 32], normalised per channel by (0.4914, 0.4822, 0.4465) and
/// (0.2470, 0.2435, 0.2616).
class CIFAR10 final : public Dataset {
 public:
  /// Throws IoError for a missing or empty file, a length that is no multiple of 3073, or a label above 9.
  explicit CIFAR10(const std::filesystem::path& root, Split split = Split::train);
  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  Batch get_batch(std::span<const std::int64_t> indices) const override;

 private:
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

/// Made-up images that can be learnt: the sample's class mean (elements in [-1, 1)) plus triangular noise in
/// (-2, 2). Bit-equal for the same seed on every machine; the noise is a hash of (seed, sample, element), so
/// that no sample is stored and access is random.
class SyntheticImages final : public Dataset {
 public:
  /// Throws InvalidArgument for a negative count, a size below 1 or classes below 1.
  SyntheticImages(std::int64_t count, const Dims& sample_sizes, std::int64_t classes, std::uint64_t seed = 0);
  std::int64_t size() const override { return count_; }
  Batch get_batch(std::span<const std::int64_t> indices) const override;

 private:
  std::int64_t count_;
  Dims sizes_;
  std::int64_t classes_;
  std::uint64_t seed_;
  std::vector<float> means_;
};

}  // namespace ddp::data
