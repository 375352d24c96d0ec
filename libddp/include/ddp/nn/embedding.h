#pragma once

#include <cstdint>

#include "ddp/nn/module.h"

namespace ddp::nn {

struct EmbeddingOptions {
  DType dtype = DType::float32;
};

/// index [..] (int64) -> rows of weight [.., dim]. Parameter: weight [num, dim], standard normal.
class Embedding final : public UnaryModule {
 public:
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const EmbeddingOptions& options = {});
  /// Throws InvalidArgument unless the index is int64; on CPU also for a number outside [0, num).
  Tensor forward(const Tensor& index) override;

  Tensor weight;
};

}  // namespace ddp::nn
