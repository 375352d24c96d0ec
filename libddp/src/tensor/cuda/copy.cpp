#include "ddp_kernels/copy.h"

#include "tensor/backend/copy_backend.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {
namespace {

class CudaCopy final : public CopyBackend {
 public:
  void fill(const Tensor& x, double value) override {
    launch_kernel("kernels::fill", x.device(), [&](cudaStream_t stream) {
      return kernels::fill(kernel_array(x), kernel_type(x), kernel_sizes(x), value, stream);
    });
  }

  void copy(const Tensor& destination, const Tensor& source) override {
    launch_kernel("kernels::copy", destination.device(), [&](cudaStream_t stream) {
      return kernels::copy(kernel_array(destination), kernel_type(destination), kernel_input(source),
                           kernel_type(source), kernel_sizes(destination), stream);
    });
  }

  void index_rows(const Tensor& x, const Tensor& index, const Tensor& out) override {
    const std::int64_t count = index.numel();
    if (out.numel() == 0) return;
    launch_kernel("kernels::index_rows", out.device(), [&](cudaStream_t stream) {
      return kernels::index_rows(out.data(), x.data(), kernel_type(x), x.sizes()[0], out.nbytes() / count,
                                 index.data_ptr<std::int64_t>(), index.strides()[0], count, stream);
    });
  }
};

}  // namespace

CopyBackend& cuda_copy() {
  static CudaCopy backend;
  return backend;
}

}  // namespace ddp::raw
