#include "ddp_kernels/pool.h"

#include "tensor/backend/pool_backend.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {
namespace {

kernels::PoolShape shape_of(const Tensor& input, const Tensor& output) {
  return {.planes = input.size(0) * input.size(1),
          .h = input.size(2),
          .w = input.size(3),
          .p = output.size(2),
          .q = output.size(3)};
}
kernels::PoolWindow window_of(const PoolParams& p) {
  return {.kernel_h = p.kernel.h,
          .kernel_w = p.kernel.w,
          .stride_h = p.stride.h,
          .stride_w = p.stride.w,
          .padding_h = p.padding.h,
          .padding_w = p.padding.w};
}

class CudaPool final : public PoolBackend {
 public:
  void max_pool2d(const Tensor& x, const PoolParams& params, const Tensor& values, const Tensor& indices) override {
    launch_kernel("kernels::max_pool", x.device(), [&](cudaStream_t stream) {
      return kernels::max_pool(x.data(), values.data(), indices.data_ptr<std::int32_t>(), shape_of(x, values),
                               window_of(params), kernel_type(x), stream);
    });
  }
  void max_pool2d_grad(const Tensor& grad, const Tensor& indices, const PoolParams& params,
                       const Tensor& out) override {
    launch_kernel("kernels::max_pool_grad", out.device(), [&](cudaStream_t stream) {
      return kernels::max_pool_grad(grad.data(), indices.data_ptr<std::int32_t>(), out.data(), shape_of(out, grad),
                                    window_of(params), kernel_type(out), stream);
    });
  }
  void avg_pool2d(const Tensor& x, const PoolParams& params, const Tensor& out) override {
    launch_kernel("kernels::average_pool", x.device(), [&](cudaStream_t stream) {
      return kernels::average_pool(x.data(), out.data(), shape_of(x, out), window_of(params), params.count_include_pad,
                                   kernel_type(x), stream);
    });
  }
  void avg_pool2d_grad(const Tensor& grad, const PoolParams& params, const Tensor& out) override {
    launch_kernel("kernels::average_pool_grad", out.device(), [&](cudaStream_t stream) {
      return kernels::average_pool_grad(grad.data(), out.data(), shape_of(out, grad), window_of(params),
                                        params.count_include_pad, kernel_type(out), stream);
    });
  }
  void adaptive_avg_pool2d(const Tensor& x, const Tensor& out) override {
    launch_kernel("kernels::adaptive_average_pool", x.device(), [&](cudaStream_t stream) {
      return kernels::adaptive_average_pool(x.data(), out.data(), shape_of(x, out), kernel_type(x), stream);
    });
  }
  void adaptive_avg_pool2d_grad(const Tensor& grad, const Tensor& out) override {
    launch_kernel("kernels::adaptive_average_pool_grad", out.device(), [&](cudaStream_t stream) {
      return kernels::adaptive_average_pool_grad(grad.data(), out.data(), shape_of(out, grad), kernel_type(out),
                                                 stream);
    });
  }
};

}  // namespace

PoolBackend& cuda_pool() {
  static CudaPool backend;
  return backend;
}

}  // namespace ddp::raw
