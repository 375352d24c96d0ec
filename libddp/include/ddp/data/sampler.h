#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

/// Which examples, in which order.
namespace ddp::data {

class Sampler {
 public:
  Sampler() = default;
  Sampler(const Sampler&) = default;
  Sampler(Sampler&&) = default;
  Sampler& operator=(const Sampler&) = default;
  Sampler& operator=(Sampler&&) = default;
  virtual ~Sampler() = default;
  /// The indices of the present epoch.
  virtual std::vector<std::int64_t> indices() const = 0;
  /// How many that are.
  virtual std::int64_t size() const = 0;
};

/// 0, 1, ..., size-1.
class SequentialSampler final : public Sampler {
 public:
  /// Throws InvalidArgument for a negative size.
  explicit SequentialSampler(std::int64_t size);
  std::vector<std::int64_t> indices() const override;
  std::int64_t size() const override { return size_; }

 private:
  std::int64_t size_;
};

struct DistributedSamplerOptions {
  bool shuffle = true;
  /// Must be equal on all ranks, so with several replicas it needs `agree`. Left out: 0, as in PyTorch.
  std::optional<std::uint64_t> seed = {};
  /// Drop the tail that does not divide evenly; else the front is repeated to fill it (PyTorch's rule).
  bool drop_last = false;
  /// Agrees the seed through the ranks: given this rank's seed, returns the one for all or throws. See
  /// parallel::agree_seed(group). A function that returns what it gets vouches for the ranks' seeds.
  std::function<std::uint64_t(std::uint64_t)> agree = {};
};

/// One rank's share of a dataset, PyTorch's semantics: all ranks permute alike from seed + epoch, then rank
/// r takes r, r+N, r+2N, ...; all shares have equal size. The epoch moves on only by `set_epoch`; after a
/// second pass with the same epoch and shuffling on, one warning on standard error says so.
///
/// The permutation is the same on every machine: a Fisher-Yates shuffle from the back, whose k-th number (from 1)
/// is the SplitMix64 output for state (seed + epoch) + k * 0x9e3779b97f4a7c15, scaled to [0, i] by the high half
/// of its 128-bit product with i + 1. It is not PyTorch's permutation. Not thread safe.
class DistributedSampler final : public Sampler {
 public:
  /// Throws InvalidArgument unless 0 <= rank < num_replicas and size >= 0, and for a seed without `agree` where
  /// ranks that differ in it would draw overlapping shares.
  DistributedSampler(std::int64_t dataset_size, int num_replicas, int rank,
                     const DistributedSamplerOptions& options = {});
  /// Throws InvalidArgument for a negative epoch.
  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const { return epoch_; }
  std::vector<std::int64_t> indices() const override;
  std::int64_t size() const override;

 private:
  std::int64_t dataset_size_;
  int num_replicas_;
  int rank_;
  DistributedSamplerOptions options_;
  std::uint64_t seed_ = 0;
  std::int64_t epoch_ = 0;
  mutable std::int64_t passes_of_epoch_ = 0;
  mutable bool warned_ = false;
};

}  // namespace ddp::data
