#include "ddp/data/sampler.h"

#include <cstdio>
#include <numeric>
#include <utility>

#include "data/hash.h"
#include "ddp/core/error.h"

namespace ddp::data {
namespace {

__extension__ using Wide = unsigned __int128;

std::vector<std::int64_t> count_up(std::int64_t n) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(n));
  std::iota(result.begin(), result.end(), std::int64_t{0});
  return result;
}

void shuffle(std::vector<std::int64_t>& values, std::uint64_t state) {
  for (std::size_t i = values.size(); i-- > 1;) {
    state += kGoldenGamma;
    const auto j = static_cast<std::size_t>((Wide{mix64(state)} * (i + 1)) >> 64);
    std::swap(values[i], values[j]);
  }
}

}  // namespace

SequentialSampler::SequentialSampler(std::int64_t size) : size_(size) {
  DDP_CHECK(size >= 0, InvalidArgument, "SequentialSampler: size is ", size, "; it must be at least 0");
}

std::vector<std::int64_t> SequentialSampler::indices() const { return count_up(size_); }

DistributedSampler::DistributedSampler(std::int64_t dataset_size, int num_replicas, int rank,
                                       const DistributedSamplerOptions& options)
    : dataset_size_(dataset_size), num_replicas_(num_replicas), rank_(rank), options_(options) {
  DDP_CHECK(dataset_size >= 0, InvalidArgument, "DistributedSampler: dataset size is ", dataset_size,
            "; it must be at least 0");
  DDP_CHECK(num_replicas >= 1, InvalidArgument, "DistributedSampler: num_replicas is ", num_replicas,
            "; it must be at least 1");
  DDP_CHECK(rank >= 0 && rank < num_replicas, InvalidArgument, "DistributedSampler: rank is ", rank,
            "; it must be in [0, ", num_replicas, ")");
  // Ranks that shuffle from different seeds would draw overlapping shares, and nothing would show it.
  DDP_CHECK(!options.seed || options.agree || num_replicas == 1 || !options.shuffle, InvalidArgument,
            "DistributedSampler (rank ", rank, "): seed ", options.seed.value_or(0), " is given for ", num_replicas,
            " replicas, but no way to make sure that all have the same; set agree to parallel::agree_seed(group), or "
            "leave the seed out");
  const std::uint64_t own = options.seed.value_or(0);
  seed_ = options.agree ? options.agree(own) : own;
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  DDP_CHECK(epoch >= 0, InvalidArgument, "DistributedSampler: epoch is ", epoch, "; it must be at least 0");
  if (epoch != epoch_) passes_of_epoch_ = 0;
  epoch_ = epoch;
}

std::int64_t DistributedSampler::size() const {
  if (options_.drop_last) return dataset_size_ / num_replicas_;
  return dataset_size_ / num_replicas_ + (dataset_size_ % num_replicas_ != 0 ? 1 : 0);
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  std::vector<std::int64_t> all = count_up(dataset_size_);
  if (options_.shuffle) {
    shuffle(all, seed_ + static_cast<std::uint64_t>(epoch_));
    if (++passes_of_epoch_ == 2 && !warned_) {
      warned_ = true;
      std::fprintf(stderr,
                   "[ddp] warning: DistributedSampler (rank %d) goes over epoch %lld a second time in the same order; "
                   "call set_epoch(epoch) before each epoch\n",
                   rank_, static_cast<long long>(epoch_));
    }
  }
  // The list continued by its own front, as often as needed, is PyTorch's padding for every size.
  const std::int64_t count = size();
  std::vector<std::int64_t> share(static_cast<std::size_t>(count));
  for (std::int64_t k = 0; k < count; ++k) {
    share[static_cast<std::size_t>(k)] = all[static_cast<std::size_t>((rank_ + k * num_replicas_) % dataset_size_)];
  }
  return share;
}

}  // namespace ddp::data
