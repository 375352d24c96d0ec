#include "ddp_kernels/softmax.h"

#include "tensor/backend/softmax_backend.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {
namespace {

class CudaSoftmax final : public SoftmaxBackend {
 public:
  void softmax(const Tensor& x, const SoftmaxShape& shape, bool logarithm, const Tensor& out) override {
    launch_kernel(logarithm ? "kernels::log_softmax" : "kernels::softmax", out.device(), [&](cudaStream_t stream) {
      return kernels::softmax(out.data(), x.data(), {shape.outer, shape.length, shape.inner, logarithm},
                              kernel_type(out), stream);
    });
  }
  void softmax_grad(const Tensor& grad, const Tensor& y, const SoftmaxShape& shape, bool logarithm,
                    const Tensor& out) override {
    launch_kernel(
        logarithm ? "kernels::log_softmax_grad" : "kernels::softmax_grad", out.device(), [&](cudaStream_t stream) {
          return kernels::softmax_grad(out.data(), grad.data(), y.data(),
                                       {shape.outer, shape.length, shape.inner, logarithm}, kernel_type(out), stream);
        });
  }
};

}  // namespace

SoftmaxBackend& cuda_softmax() {
  static CudaSoftmax backend;
  return backend;
}

}  // namespace ddp::raw
