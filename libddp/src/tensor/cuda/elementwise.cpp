#include "ddp_kernels/elementwise.h"

#include "tensor/backend/elementwise_backend.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {
namespace {

static_assert(static_cast<int>(kernels::Unary::neg) == static_cast<int>(Unary::neg) &&
              static_cast<int>(kernels::Unary::relu) == static_cast<int>(Unary::relu) &&
              static_cast<int>(kernels::Unary::gelu) == static_cast<int>(Unary::gelu) &&
              static_cast<int>(kernels::Unary::sigmoid) == static_cast<int>(Unary::sigmoid) &&
              static_cast<int>(kernels::Unary::tanh) == static_cast<int>(Unary::tanh) &&
              static_cast<int>(kernels::Unary::exp) == static_cast<int>(Unary::exp) &&
              static_cast<int>(kernels::Unary::log) == static_cast<int>(Unary::log) &&
              static_cast<int>(kernels::Unary::sqrt) == static_cast<int>(Unary::sqrt) &&
              static_cast<int>(kernels::Unary::reciprocal) == static_cast<int>(Unary::reciprocal) &&
              static_cast<int>(kernels::Unary::abs) == static_cast<int>(Unary::abs) &&
              static_cast<int>(kernels::Unary::square) == static_cast<int>(Unary::square));
static_assert(static_cast<int>(kernels::UnaryGrad::relu) == static_cast<int>(UnaryGrad::relu) &&
              static_cast<int>(kernels::UnaryGrad::gelu) == static_cast<int>(UnaryGrad::gelu) &&
              static_cast<int>(kernels::UnaryGrad::sigmoid) == static_cast<int>(UnaryGrad::sigmoid) &&
              static_cast<int>(kernels::UnaryGrad::tanh) == static_cast<int>(UnaryGrad::tanh) &&
              static_cast<int>(kernels::UnaryGrad::exp) == static_cast<int>(UnaryGrad::exp) &&
              static_cast<int>(kernels::UnaryGrad::log) == static_cast<int>(UnaryGrad::log) &&
              static_cast<int>(kernels::UnaryGrad::sqrt) == static_cast<int>(UnaryGrad::sqrt));
static_assert(static_cast<int>(kernels::Binary::add) == static_cast<int>(Binary::add) &&
              static_cast<int>(kernels::Binary::sub) == static_cast<int>(Binary::sub) &&
              static_cast<int>(kernels::Binary::mul) == static_cast<int>(Binary::mul) &&
              static_cast<int>(kernels::Binary::div) == static_cast<int>(Binary::div));

class CudaElementwise final : public ElementwiseBackend {
 public:
  void unary(Unary op, const Tensor& x, const Tensor& out) override {
    launch_kernel("kernels::unary", out.device(), [&](cudaStream_t stream) {
      return kernels::unary(static_cast<kernels::Unary>(op), kernel_array(out), kernel_input(x), kernel_sizes(out),
                            kernel_type(out), stream);
    });
  }

  void unary_grad(UnaryGrad op, const Tensor& grad, const Tensor& saved, const Tensor& out) override {
    launch_kernel("kernels::unary_grad", out.device(), [&](cudaStream_t stream) {
      return kernels::unary_grad(static_cast<kernels::UnaryGrad>(op), kernel_array(out), kernel_input(grad),
                                 kernel_input(saved), kernel_sizes(out), kernel_type(out), stream);
    });
  }

  void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) override {
    launch_kernel("kernels::binary", out.device(), [&](cudaStream_t stream) {
      return kernels::binary(static_cast<kernels::Binary>(op), kernel_array(out), kernel_input(a), kernel_input(b),
                             kernel_sizes(out), kernel_type(out), stream);
    });
  }

  void binary_scalar(Binary op, const Tensor& x, double scalar, bool reversed, const Tensor& out) override {
    launch_kernel("kernels::binary_scalar", out.device(), [&](cudaStream_t stream) {
      return kernels::binary_scalar(static_cast<kernels::Binary>(op), kernel_array(out), kernel_input(x), scalar,
                                    reversed, kernel_sizes(out), kernel_type(out), stream);
    });
  }

  void axpy(const Tensor& y, const Tensor& x, double alpha) override {
    launch_kernel("kernels::add_scaled", y.device(), [&](cudaStream_t stream) {
      return kernels::add_scaled(kernel_array(y), kernel_input(y), kernel_input(x), alpha, kernel_sizes(y),
                                 kernel_type(y), stream);
    });
  }

  void equal_elements(const Tensor& a, const Tensor& b, const Tensor& out) override {
    launch_kernel("kernels::equal_elements", out.device(), [&](cudaStream_t stream) {
      return kernels::equal_elements(kernel_array(out), kernel_input(a), kernel_input(b), kernel_sizes(out),
                                     kernel_type(a), stream);
    });
  }

  void div_grad_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor& out) override {
    launch_kernel("kernels::div_grad_b", out.device(), [&](cudaStream_t stream) {
      return kernels::div_grad_b(kernel_array(out), kernel_input(grad), kernel_input(a), kernel_input(b),
                                 kernel_sizes(out), kernel_type(out), stream);
    });
  }
};

}  // namespace

ElementwiseBackend& cuda_elementwise() {
  static CudaElementwise backend;
  return backend;
}

}  // namespace ddp::raw
