#include "ddp_kernels/random.h"

#include "tensor/backend/random_backend.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {
namespace {

kernels::Philox philox(RandomState state) { return {state.seed, state.block}; }

class CudaRandom final : public RandomBackend {
 public:
  void uniform(const Tensor& x, double low, double high, double largest, RandomState state) override {
    launch_kernel("kernels::uniform", x.device(), [&](cudaStream_t stream) {
      return kernels::uniform(x.data(), kernel_type(x), x.numel(), low, high, largest, philox(state), stream);
    });
  }
  void normal(const Tensor& x, double mean, double deviation, RandomState state) override {
    launch_kernel("kernels::normal", x.device(), [&](cudaStream_t stream) {
      return kernels::normal(x.data(), kernel_type(x), x.numel(), mean, deviation, philox(state), stream);
    });
  }
  void randint(const Tensor& x, std::int64_t low, std::uint64_t range, RandomState state) override {
    launch_kernel("kernels::randint", x.device(), [&](cudaStream_t stream) {
      return kernels::randint(x.data(), kernel_type(x), x.numel(), low, range, philox(state), stream);
    });
  }
  void dropout(const Tensor& x, std::uint64_t threshold, double scale, RandomState state, const Tensor& y,
               const Tensor& mask) override {
    launch_kernel("kernels::dropout", x.device(), [&](cudaStream_t stream) {
      return kernels::dropout(y.data(), mask.data_ptr<std::uint8_t>(), kernel_input(x), kernel_sizes(x), kernel_type(x),
                              threshold, scale, philox(state), stream);
    });
  }
  void dropout_grad(const Tensor& grad, const Tensor& mask, double scale, const Tensor& out) override {
    launch_kernel("kernels::dropout_grad", out.device(), [&](cudaStream_t stream) {
      return kernels::dropout_grad(kernel_array(out), kernel_input(grad), kernel_input(mask), kernel_sizes(out),
                                   kernel_type(out), scale, stream);
    });
  }
};

}  // namespace

RandomBackend& cuda_random() {
  static CudaRandom backend;
  return backend;
}

}  // namespace ddp::raw
