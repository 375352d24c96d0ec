#include <algorithm>

#include "core/thread_pool.h"
#include "tensor/backend/embedding_backend.h"
#include "tensor/cpu/element.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/cpu/widen.h"

namespace ddp::raw {
namespace {

void check_indices(std::string_view operation, const Tensor& index, std::int64_t rows) {
  const auto* at = index.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    DDP_CHECK(at[i] >= 0 && at[i] < rows, InvalidArgument, operation, ": index ", at[i], " at position ", i,
              "; allowed: 0 to ", rows - 1);
  }
}

template <class T>
void look_up(const Tensor& weight, const Tensor& index, const Tensor& out) {
  const std::int64_t width = weight.size(1);
  const std::int64_t row_stride = weight.strides()[0];
  const std::int64_t column_stride = weight.strides()[1];
  const T* from = weight.data_ptr<T>();
  const auto* at = index.data_ptr<std::int64_t>();
  T* to = out.data_ptr<T>();
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::kGrain / std::max<std::int64_t>(1, width));
  core::parallel_for(out.device(), index.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* row = from + at[i] * row_stride;
      if (column_stride == 1) {
        std::copy(row, row + width, to + i * width);
      } else {
        for (std::int64_t j = 0; j < width; ++j) to[i * width + j] = row[j * column_stride];
      }
    }
  });
}

// Pieces are ranges of columns: each element of the result is summed in the order of the indices, by one thread.
template <class T>
void add_rows(const Tensor& grad, const Tensor& index, const Tensor& out) {
  const std::int64_t width = out.size(1);
  const std::int64_t row_stride = out.strides()[0];
  const std::int64_t column_stride = out.strides()[1];
  const T* from = grad.data_ptr<T>();
  const auto* at = index.data_ptr<std::int64_t>();
  T* to = out.data_ptr<T>();
  const std::int64_t grain = std::max<std::int64_t>(16, cpu::kGrain / std::max<std::int64_t>(1, index.numel()));
  core::parallel_for(out.device(), width, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < index.numel(); ++i) {
      const T* row = from + i * width;
      T* sum = to + at[i] * row_stride;
      for (std::int64_t j = begin; j < end; ++j) sum[j * column_stride] += row[j];
    }
  });
}

class CpuEmbedding final : public EmbeddingBackend {
 public:
  void embedding(const Tensor& weight, const Tensor& index, const Tensor& out) override {
    check_indices("embedding", index, weight.size(0));
    dispatch_floating("embedding", weight.dtype(), [&]<class T>(TypeTag<T>) { look_up<T>(weight, index, out); });
  }
  void embedding_grad(const Tensor& grad, const Tensor& index, const Tensor& out, bool accumulate) override {
    check_indices("embedding_grad", index, out.size(0));
    if (cpu::is_narrow(out.dtype())) {
      cpu::through_float32(out, accumulate,
                           [&](const Tensor& wide) { embedding_grad(cpu::widen(grad), index, wide, accumulate); });
      return;
    }
    if (!accumulate) fill_(out, 0);
    if (out.dtype() == DType::float32) {
      add_rows<float>(grad, index, out);
    } else {
      add_rows<double>(grad, index, out);
    }
  }
};

}  // namespace

EmbeddingBackend& cpu_embedding() {
  static CpuEmbedding backend;
  return backend;
}

}  // namespace ddp::raw
