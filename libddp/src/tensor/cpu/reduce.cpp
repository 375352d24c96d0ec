#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/backend/reduce_backend.h"
#include "tensor/copy.h"
#include "tensor/cpu/reduce_sum.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/dispatch.h"

namespace ddp::raw {

namespace {

constexpr std::int64_t kBlock = 65536;  // elements of one partial result: fixed, so threads do not matter

// Adds up partial(run, step, count) over all elements in an order that depends on the sizes only.
template <class T, class A, class F>
A reduce_blocks(const Tensor& x, F&& partial) {
  const auto plan = cpu::make_plan<1>({&x});
  const std::int64_t blocks = (plan.numel + kBlock - 1) / kBlock;
  std::vector<A> parts(static_cast<std::size_t>(blocks));
  core::parallel_for(x.device(), blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      A sum{};
      cpu::for_rows(plan, b * kBlock, std::min(plan.numel, (b + 1) * kBlock),
                    [&](const auto& p, const auto& strides, std::int64_t n) {
                      sum += partial(reinterpret_cast<const T*>(p[0]),
                                     strides[0] / static_cast<std::int64_t>(sizeof(T)), n);
                    });
      parts[static_cast<std::size_t>(b)] = sum;
    }
  });
  A total{};
  for (const A& part : parts) total += part;
  return total;
}

// Sum of f(element) in A with sixteen accumulators side by side.
template <class T, class A, class F>
A sum_mapped(const T* p, std::int64_t step, std::int64_t n, F f) {
  constexpr std::int64_t kLanes = 16;
  A lanes[kLanes] = {};
  std::int64_t i = 0;
  if (step == 1) {
    for (; i + kLanes <= n; i += kLanes) {
      for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += f(cpu::load(p[i + l]));
    }
  }
  for (; i < n; ++i) lanes[i % kLanes] += f(cpu::load(p[i * step]));
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

class CpuReduce : public ReduceBackend {
 public:
  void sum(const Tensor& x, const Tensor& out, bool accumulate) override {
    if (x.numel() != 0) {
      cpu::sum(x, out, accumulate);
    } else if (!accumulate) {
      fill_(out, 0);
    }
  }

  void max(const Tensor& x, std::size_t dim, const Tensor& values, const Tensor& indices) override {
    const std::int64_t size = x.sizes()[dim];
    const std::int64_t step = x.strides()[dim];
    const Tensor first = slice(x, static_cast<std::int64_t>(dim), 0, 1, 1);
    dispatch_all("max", x.dtype(), [&]<class T>(TypeTag<T>) {
      const auto plan = cpu::make_plan<3>({&values, &indices, &first});
      core::parallel_for(x.device(), plan.numel, std::max<std::int64_t>(1, cpu::kGrain / size),
                         [&](std::int64_t begin, std::int64_t end) {
                           cpu::for_rows(plan, begin, end, [&](auto p, const auto& strides, std::int64_t n) {
                             for (; n > 0; --n, p[0] += strides[0], p[1] += strides[1], p[2] += strides[2]) {
                               const auto* from = reinterpret_cast<const T*>(p[2]);
                               auto best = cpu::load(from[0]);
                               std::int64_t where = 0;
                               for (std::int64_t j = 1; j < size; ++j) {
                                 const auto value = cpu::load(from[j * step]);
                                 // The first NaN wins and stays: no comparison with it holds.
                                 if (value > best || (cpu::is_nan(value) && !cpu::is_nan(best))) {
                                   best = value;
                                   where = j;
                                 }
                               }
                               *reinterpret_cast<T*>(p[0]) = from[where * step];
                               *reinterpret_cast<std::int64_t*>(p[1]) = where;
                             }
                           });
                         });
    });
  }

  void scatter_by_index(const Tensor& grad, const Tensor& indices, const Tensor& out, std::size_t dim) override {
    const std::int64_t size = out.sizes()[dim];
    const std::int64_t step = out.strides()[dim];
    if (size == 0)
      detail::fail<InvalidArgument>("scatter_by_index: dimension ", dim, " of sizes ", out.sizes(), " is empty");
    const Tensor first = slice(out, static_cast<std::int64_t>(dim), 0, 1, 1);
    dispatch_all("scatter_by_index", grad.dtype(), [&]<class T>(TypeTag<T>) {
      const auto plan = cpu::make_plan<3>({&first, &grad, &indices});
      cpu::parallel_rows(out.device(), plan, [&](auto p, const auto& strides, std::int64_t n) {
        for (; n > 0; --n, p[0] += strides[0], p[1] += strides[1], p[2] += strides[2]) {
          const std::int64_t where = *reinterpret_cast<const std::int64_t*>(p[2]);
          DDP_CHECK(where >= 0 && where < size, InvalidArgument, "scatter_by_index: index ", where, "; allowed: 0 to ",
                    size - 1);
          reinterpret_cast<T*>(p[0])[where * step] = *reinterpret_cast<const T*>(p[1]);
        }
      });
    });
  }

  void sum_of_squares(const Tensor& x, const Tensor& out) override {
    dispatch_floating("sum_of_squares", x.dtype(), [&]<class T>(TypeTag<T>) {
      *out.data_ptr<double>() = reduce_blocks<T, double>(x, [](const T* p, std::int64_t step, std::int64_t n) {
        return sum_mapped<T, double>(p, step, n, [](auto value) {
          const auto wide = static_cast<double>(value);
          return wide * wide;
        });
      });
    });
  }

  void count_nonfinite(const Tensor& x, const Tensor& out) override {
    dispatch_floating("count_nonfinite", x.dtype(), [&]<class T>(TypeTag<T>) {
      *out.data_ptr<std::int64_t>() =
          reduce_blocks<T, std::int64_t>(x, [](const T* p, std::int64_t step, std::int64_t n) {
            return sum_mapped<T, std::int64_t>(p, step, n, [](auto value) {
              using C = decltype(value);
              const bool finite = std::fabs(value) <= std::numeric_limits<C>::max();
              return finite ? std::int64_t{0} : std::int64_t{1};
            });
          });
    });
  }
};

}  // namespace

ReduceBackend& cpu_reduce() {
  static CpuReduce backend;
  return backend;
}

}  // namespace ddp::raw
