#include "core/thread_pool.h"
#include "tensor/backend/conv_backend.h"
#include "tensor/cpu/conv_shape.h"
#include "tensor/cpu/element.h"
#include "tensor/cpu/widen.h"

namespace ddp::raw {
namespace {

using cpu::ConvShape;
using cpu::is_narrow;
using cpu::through_float32;
using cpu::widen;

ConvShape shape_of(const Dims& x, const Dims& weight, const Dims& y, const ConvParams& params, Device device) {
  return {.n = x[0],
          .c = x[1],
          .h = x[2],
          .w = x[3],
          .k = weight[0],
          .r = weight[2],
          .s = weight[3],
          .p = y[2],
          .q = y[3],
          .params = params,
          .device = device};
}

template <class T>
void bias_grad(const Tensor& grad, const Tensor& out, bool accumulate) {
  const std::int64_t channels = grad.size(1);
  const std::int64_t area = grad.size(2) * grad.size(3);
  const T* from = grad.data_ptr<T>();
  T* to = out.data_ptr<T>();
  const std::int64_t stride = out.strides()[0];
  core::parallel_for(grad.device(), channels, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      double sum = 0;
      for (std::int64_t image = 0; image < grad.size(0); ++image) {
        const T* plane = from + (image * channels + k) * area;
        // Several sums side by side, in an order that the compiler need not change to vectorise.
        constexpr std::int64_t kSums = 32;
        using Sum = ComputeType<T>;
        Sum sums[kSums] = {};
        std::int64_t i = 0;
        for (; i + kSums <= area; i += kSums) {
          for (std::int64_t j = 0; j < kSums; ++j) sums[j] += static_cast<Sum>(cpu::load(plane[i + j]));
        }
        for (; i < area; ++i) sums[0] += static_cast<Sum>(cpu::load(plane[i]));
        for (const Sum part : sums) sum += static_cast<double>(part);
      }
      T& element = to[k * stride];
      element = cpu::store<T>(accumulate ? static_cast<double>(cpu::load(element)) + sum : sum);
    }
  });
}

class CpuConv final : public ConvBackend {
 public:
  void conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvParams& params,
              const Tensor& out) override {
    if (is_narrow(out.dtype())) {
      through_float32(out, false,
                      [&](const Tensor& wide) { conv2d(widen(x), widen(weight), widen(bias), params, wide); });
    } else if (out.dtype() == DType::float32) {
      forward<float>(x, weight, bias, params, out);
    } else {
      forward<double>(x, weight, bias, params, out);
    }
  }
  void conv2d_input_grad(const Tensor& grad, const Tensor& weight, const ConvParams& params,
                         const Tensor& out) override {
    if (is_narrow(out.dtype())) {
      through_float32(out, false,
                      [&](const Tensor& wide) { conv2d_input_grad(widen(grad), widen(weight), params, wide); });
    } else if (out.dtype() == DType::float32) {
      input_grad<float>(grad, weight, params, out);
    } else {
      input_grad<double>(grad, weight, params, out);
    }
  }
  void conv2d_weight_grad(const Tensor& grad, const Tensor& x, const ConvParams& params, const Tensor& out,
                          bool accumulate) override {
    if (is_narrow(out.dtype())) {
      through_float32(out, accumulate,
                      [&](const Tensor& wide) { conv2d_weight_grad(widen(grad), widen(x), params, wide, accumulate); });
    } else if (out.dtype() == DType::float32) {
      weight_grad<float>(grad, x, params, out, accumulate);
    } else {
      weight_grad<double>(grad, x, params, out, accumulate);
    }
  }
  void conv2d_bias_grad(const Tensor& grad, const Tensor& out, bool accumulate) override {
    dispatch_floating("conv2d_bias_grad", grad.dtype(),
                      [&]<class T>(TypeTag<T>) { bias_grad<T>(grad, out, accumulate); });
  }

 private:
  template <class T>
  static void forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvParams& params,
                      const Tensor& out) {
    cpu::conv_forward<T>(shape_of(x.sizes(), weight.sizes(), out.sizes(), params, out.device()), x.data_ptr<T>(),
                         weight.data_ptr<T>(), bias.defined() ? bias.data_ptr<T>() : nullptr, out.data_ptr<T>());
  }
  template <class T>
  static void input_grad(const Tensor& grad, const Tensor& weight, const ConvParams& params, const Tensor& out) {
    cpu::conv_input_grad<T>(shape_of(out.sizes(), weight.sizes(), grad.sizes(), params, out.device()),
                            grad.data_ptr<T>(), weight.data_ptr<T>(), out.data_ptr<T>());
  }
  template <class T>
  static void weight_grad(const Tensor& grad, const Tensor& x, const ConvParams& params, const Tensor& out,
                          bool accumulate) {
    cpu::conv_weight_grad<T>(shape_of(x.sizes(), out.sizes(), grad.sizes(), params, out.device()), grad.data_ptr<T>(),
                             x.data_ptr<T>(), out.data_ptr<T>(), out.strides(), accumulate);
  }
};

}  // namespace

ConvBackend& cpu_conv() {
  static CpuConv backend;
  return backend;
}

}  // namespace ddp::raw
