#include <algorithm>
#include <limits>

#include "core/thread_pool.h"
#include "tensor/backend/softmax_backend.h"
#include "tensor/cpu/element.h"
#include "tensor/cpu/lane_sum.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/cpu/vector_math.h"

namespace ddp::raw {
namespace {

using cpu::load;
using cpu::Scratch;
using cpu::store;

// Calls f(first element's offset, buffer of `buffers` rows) for each row along `length`, in parallel.
template <class C, class F>
void for_softmax_rows(Device device, const SoftmaxShape& shape, std::int64_t buffers, F&& f) {
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::kGrain / (8 * shape.length));
  core::parallel_for(device, shape.outer * shape.inner, grain, [&](std::int64_t begin, std::int64_t end) {
    const Scratch<C> rows(buffers * shape.length, device);
    for (std::int64_t i = begin; i < end; ++i) {
      f(i / shape.inner * shape.length * shape.inner + i % shape.inner, rows.data());
    }
  });
}

template <class T, class C>
void read_row(const T* from, const SoftmaxShape& shape, C* row) {
  if (shape.inner == 1) {
    DDP_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < shape.length; ++i) row[i] = load(from[i]);
  } else {
    for (std::int64_t i = 0; i < shape.length; ++i) row[i] = load(from[i * shape.inner]);
  }
}

template <class T, class F>
void write_row(T* to, const SoftmaxShape& shape, F&& value) {
  if (shape.inner == 1) {
    DDP_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < shape.length; ++i) to[i] = store<T>(value(i));
  } else {
    for (std::int64_t i = 0; i < shape.length; ++i) to[i * shape.inner] = store<T>(value(i));
  }
}

template <class T>
void forward(const Tensor& x, const SoftmaxShape& shape, bool logarithm, const Tensor& out) {
  using C = ComputeType<T>;
  const T* from = x.data_ptr<T>();
  T* to = out.data_ptr<T>();
  const std::int64_t n = shape.length;
  for_softmax_rows<C>(out.device(), shape, 2, [&](std::int64_t offset, C* row) {
    read_row(from + offset, shape, row);
    C largest = -std::numeric_limits<C>::infinity();
    for (std::int64_t i = 0; i < n; ++i) largest = row[i] > largest ? row[i] : largest;
    C* exponentials = row + n;
    DDP_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < n; ++i) exponentials[i] = cpu::exp_of(row[i] - largest);
    const double sum = cpu::lane_sum(n, [&](std::int64_t i) { return exponentials[i]; });
    if (logarithm) {
      const C shift = static_cast<C>(std::log(sum));
      write_row(to + offset, shape, [&](std::int64_t i) { return row[i] - largest - shift; });
    } else {
      const C divisor = static_cast<C>(sum);
      write_row(to + offset, shape, [&](std::int64_t i) { return exponentials[i] / divisor; });
    }
  });
}

template <class T>
void backward(const Tensor& grad, const Tensor& y, const SoftmaxShape& shape, bool logarithm, const Tensor& out) {
  using C = ComputeType<T>;
  const T* g_from = grad.data_ptr<T>();
  const T* y_from = y.data_ptr<T>();
  T* to = out.data_ptr<T>();
  const std::int64_t n = shape.length;
  for_softmax_rows<C>(out.device(), shape, 2, [&](std::int64_t offset, C* g) {
    C* p = g + n;
    read_row(g_from + offset, shape, g);
    read_row(y_from + offset, shape, p);
    if (logarithm) {
      const C sum = static_cast<C>(cpu::lane_sum(n, [&](std::int64_t i) { return g[i]; }));
      write_row(to + offset, shape, [&](std::int64_t i) { return g[i] - cpu::exp_of(p[i]) * sum; });
    } else {
      const C sum = static_cast<C>(cpu::lane_sum(n, [&](std::int64_t i) { return g[i] * p[i]; }));
      write_row(to + offset, shape, [&](std::int64_t i) { return p[i] * (g[i] - sum); });
    }
  });
}

class CpuSoftmax final : public SoftmaxBackend {
 public:
  void softmax(const Tensor& x, const SoftmaxShape& shape, bool logarithm, const Tensor& out) override {
    dispatch_floating("softmax", x.dtype(), [&]<class T>(TypeTag<T>) { forward<T>(x, shape, logarithm, out); });
  }
  void softmax_grad(const Tensor& grad, const Tensor& y, const SoftmaxShape& shape, bool logarithm,
                    const Tensor& out) override {
    dispatch_floating("softmax_grad", y.dtype(),
                      [&]<class T>(TypeTag<T>) { backward<T>(grad, y, shape, logarithm, out); });
  }
};

}  // namespace

SoftmaxBackend& cpu_softmax() {
  static CpuSoftmax backend;
  return backend;
}

}  // namespace ddp::raw
