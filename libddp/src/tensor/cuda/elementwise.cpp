#include "ddp_kernels/elementwise.h"
#include "tensor/backend/elementwise_backend.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {
namespace {

/// out = a + alpha * b.
void add(const Tensor& out, const Tensor& a, const Tensor& b, double alpha) {
  launch_kernel("kernels::add", out.device(), [&](cudaStream_t stream) {
    return kernels::add(out.data(), kernel_strides(out), a.data(), kernel_strides(a), b.data(), kernel_strides(b),
                        kernel_sizes(out), alpha, kernel_type(out), stream);
  });
}

class CudaElementwise final : public ElementwiseBackend {
 public:
  void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) override {
    if (op != Binary::add && op != Binary::sub) return ElementwiseBackend::binary(op, a, b, out);
    add(out, a, b, op == Binary::add ? 1 : -1);
  }
  void axpy(const Tensor& y, const Tensor& x, double alpha) override { add(y, y, x, alpha); }
};

}  // namespace

ElementwiseBackend& cuda_elementwise() {
  static CudaElementwise backend;
  return backend;
}

}  // namespace ddp::raw
