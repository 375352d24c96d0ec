#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/thread_pool.h"
#include "tensor/backend/pool_backend.h"
#include "tensor/cpu/element.h"
#include "tensor/cpu/max_pool_rows.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/strided_loop.h"

namespace ddp::raw {
namespace {

using cpu::load;
using cpu::store;

struct Plane {
  std::int64_t h, w;
  std::int64_t area() const { return h * w; }
};
Plane plane_of(const Tensor& x) { return {x.size(2), x.size(3)}; }

// Calls f(plane number) for all planes of [N, C, H, W] in parallel.
template <class F>
void for_planes(const Tensor& x, std::int64_t work, F&& f) {
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::kGrain / std::max<std::int64_t>(1, work));
  core::parallel_for(x.device(), x.size(0) * x.size(1), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

// The part of a window that lies inside one axis.
struct Range {
  std::int64_t begin, end;
};
Range window(std::int64_t output, std::int64_t kernel, std::int64_t stride, std::int64_t padding, std::int64_t size) {
  const std::int64_t first = output * stride - padding;
  return {std::max<std::int64_t>(first, 0), std::min(first + kernel, size)};
}
Range adaptive_window(std::int64_t output, std::int64_t outputs, std::int64_t size) {
  return {output * size / outputs, ((output + 1) * size + outputs - 1) / outputs};
}

template <class T>
void max_pool(const Tensor& x, const PoolParams& p, const Tensor& values, const Tensor& indices) {
  const Plane in = plane_of(x);
  const Plane out = plane_of(values);
  const T* from = x.data_ptr<T>();
  T* to = values.data_ptr<T>();
  auto* to_index = indices.data_ptr<std::int32_t>();
  const bool halving = p.kernel.h == 2 && p.kernel.w == 2 && p.stride.h == 2 && p.stride.w == 2 && p.padding.h == 0 &&
                       p.padding.w == 0 && out.w >= cpu::kMaxPoolBlock;
  for_planes(x, in.area(), [&](std::int64_t number) {
    const T* plane = from + number * in.area();
    T* value = to + number * out.area();
    std::int32_t* index = to_index + number * out.area();
    for (std::int64_t i = 0; i < out.h; ++i, value += out.w, index += out.w) {
      if constexpr (std::is_same_v<T, float>) {
        if (halving) {
          cpu::max_pool_halving_row(plane + 2 * i * in.w, in.w, 2 * i * in.w, out.w, value, index);
          continue;
        }
      }
      const Range rows = window(i, p.kernel.h, p.stride.h, p.padding.h, in.h);
      for (std::int64_t j = 0; j < out.w; ++j) {
        const Range columns = window(j, p.kernel.w, p.stride.w, p.padding.w, in.w);
        std::int64_t best = rows.begin * in.w + columns.begin;
        for (std::int64_t y = rows.begin; y < rows.end; ++y) {
          for (std::int64_t c = columns.begin; c < columns.end; ++c) {
            const auto element = load(plane[y * in.w + c]);
            if (element > load(plane[best]) || element != element) best = y * in.w + c;
          }
        }
        value[j] = plane[best];
        index[j] = static_cast<std::int32_t>(best);
      }
    }
  });
}

// Fills each plane of `out` through f(number, plane in the compute type), which finds it zeroed.
template <class T, class F>
void for_zeroed_planes(const Tensor& out, F&& f) {
  using C = ComputeType<T>;
  const std::int64_t area = plane_of(out).area();
  T* to = out.data_ptr<T>();
  for_planes(out, area, [&](std::int64_t number) {
    T* plane = to + number * area;
    if constexpr (std::is_same_v<T, C>) {
      std::fill(plane, plane + area, T{});
      f(number, plane);
    } else {
      const cpu::Scratch<C> sums(area, out.device());
      std::fill(sums.data(), sums.data() + area, C{});
      f(number, sums.data());
      for (std::int64_t i = 0; i < area; ++i) plane[i] = store<T>(sums[i]);
    }
  });
}

template <class T>
void max_pool_gradient(const Tensor& grad, const Tensor& indices, const Tensor& out) {
  const std::int64_t outputs = plane_of(grad).area();
  const T* from = grad.data_ptr<T>();
  const auto* at = indices.data_ptr<std::int32_t>();
  for_zeroed_planes<T>(out, [&](std::int64_t number, ComputeType<T>* plane) {
    const T* g = from + number * outputs;
    const std::int32_t* index = at + number * outputs;
    for (std::int64_t i = 0; i < outputs; ++i) plane[index[i]] += load(g[i]);
  });
}

// Averages over windows that `rows(i)` and `columns(j)` give; `divisor` 0 stands for the window's own size.
template <class T, class Rows, class Columns>
void average(const Tensor& x, const Tensor& y, std::int64_t divisor, Rows&& rows, Columns&& columns) {
  using C = ComputeType<T>;
  const Plane in = plane_of(x);
  const Plane out = plane_of(y);
  const T* from = x.data_ptr<T>();
  T* to = y.data_ptr<T>();
  for_planes(x, in.area(), [&](std::int64_t number) {
    const T* plane = from + number * in.area();
    T* value = to + number * out.area();
    for (std::int64_t i = 0; i < out.h; ++i) {
      const Range r = rows(i);
      for (std::int64_t j = 0; j < out.w; ++j) {
        const Range c = columns(j);
        C sum{};
        for (std::int64_t a = r.begin; a < r.end; ++a) {
          for (std::int64_t b = c.begin; b < c.end; ++b) sum += load(plane[a * in.w + b]);
        }
        const std::int64_t count = divisor != 0 ? divisor : (r.end - r.begin) * (c.end - c.begin);
        *value++ = store<T>(sum / static_cast<C>(count));
      }
    }
  });
}
template <class T, class Rows, class Columns>
void average_gradient(const Tensor& grad, const Tensor& x_grad, std::int64_t divisor, Rows&& rows, Columns&& columns) {
  using C = ComputeType<T>;
  const Plane in = plane_of(x_grad);
  const Plane out = plane_of(grad);
  const T* from = grad.data_ptr<T>();
  for_zeroed_planes<T>(x_grad, [&](std::int64_t number, C* plane) {
    const T* g = from + number * out.area();
    for (std::int64_t i = 0; i < out.h; ++i) {
      const Range r = rows(i);
      for (std::int64_t j = 0; j < out.w; ++j) {
        const Range c = columns(j);
        const std::int64_t count = divisor != 0 ? divisor : (r.end - r.begin) * (c.end - c.begin);
        const C share = load(*g++) / static_cast<C>(count);
        for (std::int64_t a = r.begin; a < r.end; ++a) {
          for (std::int64_t b = c.begin; b < c.end; ++b) plane[a * in.w + b] += share;
        }
      }
    }
  });
}

std::int64_t divisor_of(const PoolParams& p) { return p.count_include_pad ? p.kernel.h * p.kernel.w : 0; }

auto rows_of(const PoolParams& p, const Tensor& x) {
  return [p, size = x.size(2)](std::int64_t i) { return window(i, p.kernel.h, p.stride.h, p.padding.h, size); };
}
auto columns_of(const PoolParams& p, const Tensor& x) {
  return [p, size = x.size(3)](std::int64_t j) { return window(j, p.kernel.w, p.stride.w, p.padding.w, size); };
}
auto adaptive(std::int64_t outputs, std::int64_t size) {
  return [=](std::int64_t i) { return adaptive_window(i, outputs, size); };
}

class CpuPool final : public PoolBackend {
 public:
  void max_pool2d(const Tensor& x, const PoolParams& params, const Tensor& values, const Tensor& indices) override {
    dispatch_floating("max_pool2d", x.dtype(), [&]<class T>(TypeTag<T>) { max_pool<T>(x, params, values, indices); });
  }
  void max_pool2d_grad(const Tensor& grad, const Tensor& indices, const PoolParams& /*params*/,
                       const Tensor& out) override {
    dispatch_floating("max_pool2d_grad", grad.dtype(),
                      [&]<class T>(TypeTag<T>) { max_pool_gradient<T>(grad, indices, out); });
  }
  void avg_pool2d(const Tensor& x, const PoolParams& p, const Tensor& out) override {
    dispatch_floating("avg_pool2d", x.dtype(),
                      [&]<class T>(TypeTag<T>) { average<T>(x, out, divisor_of(p), rows_of(p, x), columns_of(p, x)); });
  }
  void avg_pool2d_grad(const Tensor& grad, const PoolParams& p, const Tensor& out) override {
    dispatch_floating("avg_pool2d_grad", grad.dtype(), [&]<class T>(TypeTag<T>) {
      average_gradient<T>(grad, out, divisor_of(p), rows_of(p, out), columns_of(p, out));
    });
  }
  void adaptive_avg_pool2d(const Tensor& x, const Tensor& out) override {
    dispatch_floating("adaptive_avg_pool2d", x.dtype(), [&]<class T>(TypeTag<T>) {
      average<T>(x, out, 0, adaptive(out.size(2), x.size(2)), adaptive(out.size(3), x.size(3)));
    });
  }
  void adaptive_avg_pool2d_grad(const Tensor& grad, const Tensor& out) override {
    dispatch_floating("adaptive_avg_pool2d_grad", grad.dtype(), [&]<class T>(TypeTag<T>) {
      average_gradient<T>(grad, out, 0, adaptive(grad.size(2), out.size(2)), adaptive(grad.size(3), out.size(3)));
    });
  }
};

}  // namespace

PoolBackend& cpu_pool() {
  static CpuPool backend;
  return backend;
}

}  // namespace ddp::raw
