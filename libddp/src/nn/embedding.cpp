#include "ddp/nn/embedding.h"

#include "ddp/autograd/functions.h"
#include "ddp/core/error.h"
#include "ddp/nn/init.h"

namespace ddp::nn {

/// Initialisation: PyTorch, torch/nn/modules/sparse.py, Embedding.reset_parameters.
Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const EmbeddingOptions& options) {
  DDP_CHECK(num_embeddings >= 1 && embedding_dim >= 1, InvalidArgument, "Embedding: num_embeddings ", num_embeddings,
            " and embedding_dim ", embedding_dim, " must be at least 1");
  weight = register_parameter("weight", empty({num_embeddings, embedding_dim}, {.dtype = options.dtype}));
  init::normal_(weight);
}

Tensor Embedding::forward(const Tensor& index) {
  DDP_CHECK(index.dtype() == DType::int64, InvalidArgument, "Embedding: the index is ", index.dtype(),
            "; it must be int64");
  return embedding(index, weight);
}

}  // namespace ddp::nn
