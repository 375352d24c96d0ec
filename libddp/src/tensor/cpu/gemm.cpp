#include <cstdint>

#include "core/thread_pool.h"
#include "tensor/backend/gemm_backend.h"
#include "tensor/cpu/gemm_core.h"
#include "tensor/cpu/widen.h"

namespace ddp::raw {
namespace {

using cpu::GemmOptions;
using cpu::MatrixView;

template <class T>
MatrixView<T> matrix(const Tensor& x, std::int64_t offset = 0) {
  const std::size_t rank = x.sizes().size();
  return {static_cast<T*>(x.data()) + offset, x.strides()[rank - 2], x.strides()[rank - 1]};
}
template <class T>
MatrixView<const T> input(const Tensor& x, std::int64_t offset = 0) {
  const auto view = matrix<T>(x, offset);
  return {view.data, view.row_stride, view.column_stride};
}

// Distance from the first matrix of the batch to number `index`.
std::int64_t batch_offset(const Tensor& x, std::int64_t index) {
  if (x.numel() == 0) return 0;  // no memory to point into
  std::int64_t offset = 0;
  for (std::size_t d = x.sizes().size() - 2; d-- > 0;) {
    offset += index % x.sizes()[d] * x.strides()[d];
    index /= x.sizes()[d];
  }
  return offset;
}

template <class T>
void batched(const Tensor& a, const Tensor& b, const Tensor& out, bool accumulate) {
  const std::int64_t m = out.size(-2);
  const std::int64_t n = out.size(-1);
  const GemmOptions<T> options{.accumulate = accumulate};
  core::parallel_for(out.device(), out.numel() / (m * n), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      cpu::gemm<T>(out.device(), m, n, a.size(-1), input<T>(a, batch_offset(a, i)), input<T>(b, batch_offset(b, i)),
                   matrix<T>(out, batch_offset(out, i)), options);
    }
  });
}

template <class T>
void run_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu, const Tensor& out) {
  const GemmOptions<T> options{.column_bias = bias.defined() ? bias.data_ptr<T>() : nullptr, .relu = relu};
  cpu::gemm<T>(out.device(), out.size(0), out.size(1), x.size(1), input<T>(x), input<T>(weight).transposed(),
               matrix<T>(out), options);
}

class CpuGemm final : public GemmBackend {
 public:
  void matmul(const Tensor& a, const Tensor& b, const Tensor& out, bool accumulate) override {
    if (cpu::is_narrow(out.dtype())) {
      cpu::through_float32(out, accumulate,
                           [&](const Tensor& wide) { batched<float>(cpu::widen(a), cpu::widen(b), wide, accumulate); });
    } else if (out.dtype() == DType::float32) {
      batched<float>(a, b, out, accumulate);
    } else {
      batched<double>(a, b, out, accumulate);
    }
  }
  void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu, const Tensor& out) override {
    if (cpu::is_narrow(out.dtype())) {
      cpu::through_float32(out, false, [&](const Tensor& wide) {
        run_linear<float>(cpu::widen(x), cpu::widen(weight), cpu::widen(bias), relu, wide);
      });
    } else if (out.dtype() == DType::float32) {
      run_linear<float>(x, weight, bias, relu, out);
    } else {
      run_linear<double>(x, weight, bias, relu, out);
    }
  }
};

}  // namespace

GemmBackend& cpu_gemm() {
  static CpuGemm backend;
  return backend;
}

}  // namespace ddp::raw
