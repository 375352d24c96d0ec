#include <algorithm>
#include <cmath>
#include <span>

#include "core/thread_pool.h"
#include "tensor/backend/foreach_backend.h"
#include "tensor/backend/reduce_backend.h"
#include "tensor/cpu/element.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/dispatch.h"

namespace ddp::raw {

namespace {

using cpu::Scratch;

// Calls work(item, begin, end) so that the items' elements, laid end to end, are shared evenly by the threads.
template <class Item, class Count, class Work>
void for_pieces(Device device, std::span<const Item> items, Count count, Work work) {
  const Scratch<std::int64_t> ends(static_cast<std::int64_t>(items.size()), device);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < items.size(); ++i) ends.data()[i] = total += count(items[i]);
  core::parallel_for(device, total, cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    auto at = std::upper_bound(ends.data(), ends.data() + items.size(), begin) - ends.data();
    while (begin < end) {
      const std::int64_t start = at == 0 ? 0 : ends[at - 1];
      const std::int64_t stop = std::min(end, ends[at]);
      if (begin < stop) work(items[static_cast<std::size_t>(at)], begin - start, stop - start);
      begin = std::max(begin, stop);
      ++at;
    }
  });
}

bool is_refused(const Chunk& chunk) { return chunk.refusal != nullptr && *chunk.refusal != 0; }

std::int64_t active_count(const Chunk& chunk) {
  return chunk.gradient == nullptr || is_refused(chunk) ? 0 : chunk.numel;
}

void count_refused(std::span<const Chunk> chunks) {
  for (const Chunk& chunk : chunks) {
    if (chunk.gradient != nullptr && chunk.numel > 0 && chunk.refused != nullptr && is_refused(chunk)) ++*chunk.refused;
  }
}

template <class T>
struct Typed {
  using C = ComputeType<T>;
  T* parameter;
  const T* gradient;
  T* state0;
  T* state1;
  std::int64_t n;

  Typed(const Chunk& chunk, std::int64_t begin, std::int64_t end)
      : parameter(static_cast<T*>(chunk.parameter) + begin),
        gradient(static_cast<const T*>(chunk.gradient) + begin),
        state0(chunk.state0 == nullptr ? nullptr : static_cast<T*>(chunk.state0) + begin),
        state1(chunk.state1 == nullptr ? nullptr : static_cast<T*>(chunk.state1) + begin),
        n(end - begin) {}
};

enum class Velocity : std::uint8_t { none, first, later };

template <Velocity kVelocity, bool kNesterov, class T>
void sgd_loop(const Typed<T>& t, const SgdParams& params) {
  using C = ComputeType<T>;
  const C rate = static_cast<C>(-params.lr);
  const C decay = static_cast<C>(params.weight_decay);
  const C momentum = static_cast<C>(params.momentum);
  const C fresh = static_cast<C>(1 - params.dampening);
  DDP_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < t.n; ++i) {
    const C p = cpu::load(t.parameter[i]);
    const C g = cpu::load(t.gradient[i]) + decay * p;
    C direction = g;
    if constexpr (kVelocity != Velocity::none) {
      C v = g;
      if constexpr (kVelocity == Velocity::later) v = momentum * cpu::load(t.state0[i]) + fresh * g;
      t.state0[i] = cpu::store<T>(v);
      direction = kNesterov ? g + momentum * v : v;
    }
    t.parameter[i] = cpu::store<T>(p + rate * direction);
  }
}

template <class T>
void sgd(const Chunk& chunk, std::int64_t begin, std::int64_t end, const SgdParams& params) {
  const Typed<T> t(chunk, begin, end);
  if (params.momentum == 0) return sgd_loop<Velocity::none, false>(t, params);
  if (chunk.step == 1) {
    return params.nesterov ? sgd_loop<Velocity::first, true>(t, params) : sgd_loop<Velocity::first, false>(t, params);
  }
  return params.nesterov ? sgd_loop<Velocity::later, true>(t, params) : sgd_loop<Velocity::later, false>(t, params);
}

template <class T>
void adam(const Chunk& chunk, std::int64_t begin, std::int64_t end, const AdamParams& params) {
  using C = ComputeType<T>;
  const Typed<T> t(chunk, begin, end);
  const auto step = static_cast<double>(chunk.step);
  const C rate = static_cast<C>(-params.lr / (1 - std::pow(params.beta1, step)));
  const C root = static_cast<C>(1 / std::sqrt(1 - std::pow(params.beta2, step)));
  const C shrink = static_cast<C>(params.decoupled ? 1 - params.lr * params.weight_decay : 1);
  const C decay = static_cast<C>(params.decoupled ? 0 : params.weight_decay);
  const C keep1 = static_cast<C>(params.beta1);
  const C keep2 = static_cast<C>(params.beta2);
  const C fresh1 = static_cast<C>(1 - params.beta1);
  const C fresh2 = static_cast<C>(1 - params.beta2);
  const C eps = static_cast<C>(params.eps);
  DDP_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < t.n; ++i) {
    const C old = cpu::load(t.parameter[i]);
    const C g = cpu::load(t.gradient[i]) + decay * old;
    const C m = keep1 * cpu::load(t.state0[i]) + fresh1 * g;
    const C v = keep2 * cpu::load(t.state1[i]) + fresh2 * (g * g);
    t.state0[i] = cpu::store<T>(m);
    t.state1[i] = cpu::store<T>(v);
    t.parameter[i] = cpu::store<T>(shrink * old + rate * m / (std::sqrt(v) * root + eps));
  }
}

class CpuForeach : public ForeachBackend {
 public:
  void sgd_step(std::span<const Chunk> chunks, const SgdParams& params, Device device) override {
    count_refused(chunks);
    for_pieces(device, chunks, active_count, [&](const Chunk& chunk, std::int64_t begin, std::int64_t end) {
      dispatch_floating("sgd_step", chunk.dtype, [&]<class T>(TypeTag<T>) { sgd<T>(chunk, begin, end, params); });
    });
  }

  void adam_step(std::span<const Chunk> chunks, const AdamParams& params, Device device) override {
    count_refused(chunks);
    for_pieces(device, chunks, active_count, [&](const Chunk& chunk, std::int64_t begin, std::int64_t end) {
      dispatch_floating("adam_step", chunk.dtype, [&]<class T>(TypeTag<T>) { adam<T>(chunk, begin, end, params); });
    });
  }

  void total_norm(std::span<const Tensor> tensors, const Tensor& out) override {
    double total = 0;
    for (const Tensor& tensor : tensors) {
      if (tensor.numel() == 0) continue;
      cpu_reduce().sum_of_squares(tensor, out);
      total += *out.data_ptr<double>();
    }
    *out.data_ptr<double>() = std::sqrt(total);
  }

  void scale_all(std::span<const Tensor> tensors, double factor, Device device) override {
    const auto count = [](const Tensor& tensor) { return tensor.numel(); };
    for_pieces(device, tensors, count, [&](const Tensor& tensor, std::int64_t begin, std::int64_t end) {
      dispatch_floating("scale_all_", tensor.dtype(), [&]<class T>(TypeTag<T>) {
        using C = ComputeType<T>;
        const C by = static_cast<C>(factor);
        T* data = static_cast<T*>(tensor.data());
        DDP_INDEPENDENT_ITERATIONS
        for (std::int64_t i = begin; i < end; ++i) data[i] = cpu::store<T>(cpu::load(data[i]) * by);
      });
    });
  }

  void clip_all(std::span<const Tensor> tensors, const Tensor& norm, double max_norm) override {
    const double factor = max_norm / (*norm.data_ptr<double>() + 1e-6);
    if (!(factor >= 1)) scale_all(tensors, factor, norm.device());
  }
};

}  // namespace

ForeachBackend& cpu_foreach() {
  static CpuForeach backend;
  return backend;
}

}  // namespace ddp::raw
