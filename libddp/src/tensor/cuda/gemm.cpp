#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "ddp_kernels/matmul.h"
#include "tensor/backend/gemm_backend.h"
#include "tensor/copy.h"
#include "tensor/cuda/gemm_plan.h"
#include "tensor/cuda/kernel_call.h"
#include "tensor/tensor_impl.h"

namespace ddp::raw {
namespace {

using cuda::Epilogue;
using cuda::GemmCall;

/// How cuBLAS can see a matrix: column-major, or as the transpose of one that is.
struct Form {
  bool usable = false;
  bool transposed = false;
  std::int64_t leading = 0;
};

Form form_of(std::int64_t rows, std::int64_t columns, std::int64_t row_stride, std::int64_t column_stride) {
  const std::int64_t column_leading = columns == 1 ? rows : column_stride;
  if ((rows == 1 || row_stride == 1) && column_leading >= rows) return {true, false, column_leading};
  const std::int64_t row_leading = rows == 1 ? columns : row_stride;
  if ((columns == 1 || column_stride == 1) && row_leading >= columns) return {true, true, row_leading};
  return {};
}

std::int64_t row_stride(const Tensor& x) { return x.strides()[x.sizes().size() - 2]; }
std::int64_t column_stride(const Tensor& x) { return x.strides().back(); }

// The last two dimensions as cuBLAS sees them, read as they are or with rows and columns swapped.
Form form_of(const Tensor& x, bool swapped) {
  return swapped ? form_of(x.size(-1), x.size(-2), column_stride(x), row_stride(x))
                 : form_of(x.size(-2), x.size(-1), row_stride(x), column_stride(x));
}

// Row-major matrices; what is repeated along leading dimensions is copied once.
Tensor dense(const Tensor& x) {
  Dims once = x.sizes();
  for (std::size_t d = 0; d + 2 < once.size(); ++d) {
    if (x.strides()[d] == 0) once[d] = 1;
  }
  const Tensor copy = clone(make_view(x, once, x.strides(), x.storage_offset()));
  Dims strides = copy.strides();
  for (std::size_t d = 0; d + 2 < once.size(); ++d) {
    if (once[d] == 1) strides[d] = 0;
  }
  return make_view(copy, x.sizes(), strides, copy.storage_offset());
}

Tensor usable(const Tensor& x) { return form_of(x, false).usable ? x : dense(x); }

/// Leading dimensions of a product, merged where all three tensors allow it. The last one goes to cuBLAS.
struct Batch {
  struct Step {
    std::int64_t size, a, b, out;
  };
  std::array<Step, Dims::kMaxRank> steps{};
  std::size_t count = 0;

  Batch(const Tensor& a, const Tensor& b, const Tensor& out) {
    for (std::size_t d = 0; d + 2 < out.sizes().size(); ++d) {
      const Step step{out.sizes()[d], a.strides()[d], b.strides()[d], out.strides()[d]};
      if (step.size == 1) continue;
      Step* last = count > 0 ? &steps[count - 1] : nullptr;
      if (last != nullptr && last->a == step.size * step.a && last->b == step.size * step.b &&
          last->out == step.size * step.out) {
        *last = {last->size * step.size, step.a, step.b, step.out};
      } else {
        steps[count++] = step;
      }
    }
    if (count == 0) steps[count++] = {1, 0, 0, 0};
  }

  /// Calls `visit(offsets of a, b and out, last step)` for each index of all dimensions but the last.
  template <class Visit>
  void for_each(const Visit& visit) const {
    std::int64_t outer = 1;
    for (std::size_t d = 0; d + 1 < count; ++d) outer *= steps[d].size;
    for (std::int64_t i = 0; i < outer; ++i) {
      Step offset{};
      std::int64_t rest = i;
      for (std::size_t d = count - 1; d-- > 0;) {
        const std::int64_t index = rest % steps[d].size;
        rest /= steps[d].size;
        offset.a += index * steps[d].a;
        offset.b += index * steps[d].b;
        offset.out += index * steps[d].out;
      }
      visit(offset, steps[count - 1]);
    }
  }
};

char* at(const Tensor& x, std::int64_t offset) {
  return static_cast<char*>(x.data()) + offset * static_cast<std::int64_t>(size_of(x.dtype()));
}

// `count` products from number `first` on by the own kernel, for what cuBLAS does not take.
void multiply_simply(const Tensor& a, const Tensor& b, const Tensor& out, bool accumulate, const Batch::Step& offset,
                     const Batch::Step& step, std::int64_t first, std::int64_t count) {
  launch_kernel("kernels::matmul", out.device(), [&](cudaStream_t stream) {
    return kernels::matmul({at(out, offset.out + first * step.out), step.out, row_stride(out), column_stride(out)},
                           {at(a, offset.a + first * step.a), step.a, row_stride(a), column_stride(a)},
                           {at(b, offset.b + first * step.b), step.b, row_stride(b), column_stride(b)}, count,
                           out.size(-2), out.size(-1), a.size(-1), accumulate, kernel_type(out), stream);
  });
}

/// All of a call that does not depend on the place in the batch. a, b and out have usable forms, and k is not 0.
/// A row-major `out` is the column-major out^T = b^T a^T.
GemmCall call_of(const Tensor& a, const Tensor& b, const Tensor& out, bool accumulate, bool& swapped) {
  const Form swapped_form = form_of(out, true);
  swapped = swapped_form.usable && !swapped_form.transposed;
  const Form out_form = swapped ? swapped_form : form_of(out, false);
  const Tensor& left = swapped ? b : a;
  const Tensor& right = swapped ? a : b;
  const Form left_form = form_of(left, swapped);
  const Form right_form = form_of(right, swapped);
  GemmCall call;
  call.m = swapped ? out.size(-1) : out.size(-2);
  call.n = swapped ? out.size(-2) : out.size(-1);
  call.k = a.size(-1);
  call.lda = left_form.leading;
  call.ldb = right_form.leading;
  call.ldd = out_form.leading;
  call.transpose_a = left_form.transposed;
  call.transpose_b = right_form.transposed;
  call.dtype = out.dtype();
  call.accumulate = accumulate;
  return call;
}

bool is_output_form(const Tensor& out) {
  const Form swapped = form_of(out, true);
  const Form plain = form_of(out, false);
  return (swapped.usable && !swapped.transposed) || (plain.usable && !plain.transposed);
}

class CudaGemm final : public GemmBackend {
 public:
  void matmul(const Tensor& a, const Tensor& b, const Tensor& out, bool accumulate) override {
    if (a.size(-1) == 0) {
      Batch(a, b, out).for_each([&](const Batch::Step& offset, const Batch::Step& step) {
        multiply_simply(a, b, out, accumulate, offset, step, 0, step.size);
      });
      return;
    }
    if (!is_output_form(out)) {
      const Tensor packed = accumulate ? clone(out) : empty(out.sizes(), out.options());
      matmul(a, b, packed, accumulate);
      copy_(out, packed);
      return;
    }
    const Tensor left = usable(a);
    const Tensor right = usable(b);
    bool swapped = false;
    const GemmCall base = call_of(left, right, out, accumulate, swapped);
    Batch(left, right, out).for_each([&](const Batch::Step& offset, const Batch::Step& step) {
      constexpr std::int64_t kMostAtOnce = 32768;  // grids of kernels end at 65535
      for (std::int64_t first = 0; first < step.size; first += kMostAtOnce) {
        GemmCall call = base;
        call.batch = std::min(kMostAtOnce, step.size - first);
        const void* a_data = at(left, offset.a + first * step.a);
        const void* b_data = at(right, offset.b + first * step.b);
        call.a = swapped ? b_data : a_data;
        call.b = swapped ? a_data : b_data;
        call.d = at(out, offset.out + first * step.out);
        if (call.batch > 1) {
          call.stride_a = swapped ? step.b : step.a;
          call.stride_b = swapped ? step.a : step.b;
          call.stride_d = step.out;
        }
        if (!cuda::run_gemm(call, out.device())) {
          multiply_simply(left, right, out, accumulate, offset, step, first, call.batch);
        }
      }
    });
  }

  void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu, const Tensor& out) override {
    const Tensor transposed = transpose(weight, 0, 1);
    const auto finish = [&](bool with_bias) {
      if (!relu && !with_bias) return;
      launch_kernel("kernels::add_bias", out.device(), [&](cudaStream_t stream) {
        return kernels::add_bias(out.data(), with_bias ? bias.data() : nullptr, relu, out.size(0), out.size(1), 1,
                                 row_stride(out), column_stride(out), kernel_type(out), stream);
      });
    };
    if (x.size(1) != 0 && (relu || bias.defined())) {
      const Tensor left = usable(x);
      const Tensor right = usable(transposed);
      bool swapped = false;
      GemmCall call = call_of(left, right, out, false, swapped);
      if (swapped) {  // the bias runs along the rows that cuBLAS sees
        call.epilogue = bias.defined() ? (relu ? Epilogue::relu_bias : Epilogue::bias) : Epilogue::relu;
        call.a = right.data();
        call.b = left.data();
        call.d = out.data();
        call.bias = bias.defined() ? bias.data() : nullptr;
        if (cuda::run_gemm(call, out.device())) return;
      }
    }
    matmul(x, transposed, out, false);
    finish(bias.defined());
  }

  bool linear_parameter_grads(const Tensor& grad, const Tensor& x, const Tensor& out, bool accumulate,
                              const Tensor& bias) override {
    const Tensor left = transpose(grad, 0, 1);
    if (!form_of(left, false).usable || !form_of(x, false).usable || !is_output_form(out)) return false;
    bool swapped = false;
    GemmCall call = call_of(left, x, out, accumulate, swapped);
    if (!swapped) return false;
    // cuBLAS's B is grad, whose sums over k belong to the columns that it sees: the rows of `out`.
    call.epilogue = Epilogue::bias_grad_b;
    call.a = x.data();
    call.b = left.data();
    call.d = out.data();
    call.bias = bias.data();
    return cuda::run_gemm(call, out.device());
  }
};

}  // namespace

GemmBackend& cuda_gemm() {
  static CudaGemm backend;
  return backend;
}

}  // namespace ddp::raw
