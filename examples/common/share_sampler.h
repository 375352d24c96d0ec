#pragma once

#include <ddp/ddp.h>

#include <vector>

namespace examples {

/// Every example of [begin, end) on exactly one rank, none twice: what an exact test accuracy needs
/// (DistributedSampler repeats examples so that all shares are equal).
class ShareSampler final : public ddp::data::Sampler {
 public:
  ShareSampler(std::int64_t begin, std::int64_t end, int num_replicas, int rank) {
    for (std::int64_t i = begin + rank; i < end; i += num_replicas) indices_.push_back(i);
  }
  std::vector<std::int64_t> indices() const override { return indices_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }

 private:
  std::vector<std::int64_t> indices_;
};

}  // namespace examples
