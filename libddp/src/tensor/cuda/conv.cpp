#include "ddp_kernels/matmul.h"
#include "tensor/backend/conv_backend.h"
#include "tensor/backend/elementwise_backend.h"
#include "tensor/copy.h"
#include "tensor/cuda/conv_columns.h"
#include "tensor/cuda/conv_cudnn.h"
#include "tensor/cuda/kernel_call.h"
#include "tensor/reduce.h"

namespace ddp::raw {
namespace {

class CudaConv final : public ConvBackend {
 public:
  void conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvParams& params,
              const Tensor& out) override {
    if (!cuda::cudnn_forward(x, weight, params, out)) cuda::columns_forward(x, weight, params, out);
    if (!bias.defined()) return;
    const std::int64_t channels = out.size(1);
    const std::int64_t area = out.size(2) * out.size(3);
    launch_kernel("kernels::add_bias", out.device(), [&](cudaStream_t stream) {
      return kernels::add_bias(out.data(), bias.data(), false, out.size(0), channels, area, channels * area, area,
                               kernel_type(out), stream);
    });
  }

  void conv2d_input_grad(const Tensor& grad, const Tensor& weight, const ConvParams& params,
                         const Tensor& out) override {
    if (!cuda::cudnn_input_grad(grad, weight, params, out)) cuda::columns_input_grad(grad, weight, params, out);
  }

  void conv2d_weight_grad(const Tensor& grad, const Tensor& x, const ConvParams& params, const Tensor& out,
                          bool accumulate) override {
    if (!out.is_contiguous() || accumulate) {
      // Into a tensor of its own first: sums in place would narrow cuDNN's choice.
      const Tensor packed = empty(out.sizes(), out.options());
      conv2d_weight_grad(grad, x, params, packed, false);
      if (accumulate) {
        elementwise_backend(out.device()).axpy(out, packed, 1);
      } else {
        copy_(out, packed);
      }
      return;
    }
    if (!cuda::cudnn_weight_grad(grad, x, params, out)) cuda::columns_weight_grad(grad, x, params, out, false);
  }

  void conv2d_bias_grad(const Tensor& grad, const Tensor& out, bool accumulate) override {
    sum(grad, {0, 2, 3}, false, out, accumulate);
  }
};

}  // namespace

ConvBackend& cuda_conv() {
  static CudaConv backend;
  return backend;
}

}  // namespace ddp::raw
