#include "ddp_kernels/embedding.h"

#include "ddp_kernels/copy.h"
#include "tensor/backend/embedding_backend.h"
#include "tensor/copy.h"
#include "tensor/cuda/kernel_call.h"
#include "tensor/cuda/scratch.h"

namespace ddp::raw {
namespace {

kernels::Table table_of(const Tensor& x) { return {x.sizes()[0], x.sizes()[1], x.strides()[0], x.strides()[1]}; }

class CudaEmbedding final : public EmbeddingBackend {
 public:
  void embedding(const Tensor& weight, const Tensor& index, const Tensor& out) override {
    if (out.numel() == 0) return;
    const kernels::Table table = table_of(weight);
    const auto* at = index.data_ptr<std::int64_t>();
    if (weight.is_contiguous()) {
      const std::int64_t row_bytes = table.width * static_cast<std::int64_t>(size_of(weight.dtype()));
      launch_kernel("kernels::index_rows", out.device(), [&](cudaStream_t stream) {
        return kernels::index_rows(out.data(), weight.data(), kernel_type(weight), table.rows, row_bytes, at, 1,
                                   index.numel(), stream);
      });
      return;
    }
    launch_kernel("kernels::embedding", out.device(), [&](cudaStream_t stream) {
      return kernels::embedding(out.data(), weight.data(), table, kernel_type(weight), at, index.numel(), stream);
    });
  }

  void embedding_grad(const Tensor& grad, const Tensor& index, const Tensor& out, bool accumulate) override {
    if (out.numel() == 0) return;
    const std::int64_t count = index.numel();
    if (count == 0) {
      if (!accumulate) fill_(out, 0);
      return;
    }
    const kernels::Table table = table_of(out);
    const cuda::Scratch<std::int64_t> places(table.rows + 1 + count, out.device());
    std::int64_t* const offsets = places.data();
    std::int64_t* const positions = offsets + table.rows + 1;
    launch_kernel("kernels::sort_indices", out.device(), [&](cudaStream_t stream) {
      return kernels::sort_indices(offsets, positions, index.data_ptr<std::int64_t>(), count, table.rows, stream);
    });
    launch_kernel("kernels::embedding_grad", out.device(), [&](cudaStream_t stream) {
      return kernels::embedding_grad(out.data(), table, kernel_type(out), grad.data(), offsets, positions, accumulate,
                                     stream);
    });
  }
};

}  // namespace

EmbeddingBackend& cuda_embedding() {
  static CudaEmbedding backend;
  return backend;
}

}  // namespace ddp::raw
