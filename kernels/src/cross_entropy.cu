#include "block_sum.cuh"
#include "ddp_kernels/loss.h"

namespace ddp::kernels {
namespace {

constexpr unsigned kThreadsAlone = 1024;
constexpr std::int64_t kFewClasses = 128;  // 32 lanes with 4 elements each
constexpr std::int64_t kShortRow = 1024;   // 32 lanes with 32 elements each
constexpr unsigned kLongRowThreads = 512;

unsigned lanes_for(std::int64_t classes) { return power_of_two_from((classes + 3) / 4, 32); }

/// Numbers of a call in the form that the kernels use.
template <class T>
struct Arguments {
  const T* logits;
  const std::int64_t* target;
  T* log_probs;
  T* loss;
  double* partials;
  std::int64_t rows;
  std::int64_t classes;
  double divisor;
  double own;  // weight of the target's log-probability
  double all;  // of every class's
};

/// Writes elements of a row and takes what the loss needs of them.
template <class T>
struct RowLoss {
  using C = Compute<T>;
  C own = 0;
  C all = 0;

  __device__ void take(const Arguments<T>& a, T* to, bool is_target, C log_prob) {
    const T stored = store_of<T>(log_prob);
    *to = stored;
    if (is_target) own = load_of(stored);
    if (a.all != 0) all += load_of(stored);
  }
  /// The part of one thread; `holder` has the target.
  __device__ double loss(const Arguments<T>& a, bool holder) const {
    double part = 0;
    if (holder) part -= a.own * static_cast<double>(own);
    if (a.all != 0) part -= a.all * static_cast<double>(all);
    return part;
  }
};

template <class T, int Items, unsigned MostThreads>
__global__ void __launch_bounds__(MostThreads) cross_entropy_short_rows(Arguments<T> a, unsigned lanes) {
  using C = Compute<T>;
  using Op = ExpSum<C>;
  const unsigned lane = threadIdx.x & (lanes - 1);
  const unsigned rows_in_block = blockDim.x / lanes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * rows_in_block;
  double part = 0;
  // The loop is one of the block, so that all lanes of a warp merge together.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows_in_block; first < a.rows; first += step) {
    const std::int64_t row = first + threadIdx.x / lanes;
    const bool inside = row < a.rows;
    const int count = inside ? static_cast<int>(a.classes) : 0;
    const std::int64_t base = row * a.classes;
    const std::int64_t target = inside ? a.target[row] : 0;
    C items[Items];
    typename Op::State state = Op::none();
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const int at = static_cast<int>(lane + i * lanes);
      items[i] = at < count ? load_of(a.logits[base + at]) : -infinity_of<C>();
    }
#pragma unroll
    for (int i = 0; i < Items; ++i) Op::add(state, items[i]);
    state = merged_lanes<Op>(state, lanes);
    const C shift = log_of(Op::total(state));
    RowLoss<T> row_loss;
    bool holder = false;
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const int at = static_cast<int>(lane + i * lanes);
      if (at >= count) continue;
      row_loss.take(a, a.log_probs + base + at, at == target, items[i] - state.largest - shift);
      holder = holder || at == target;
    }
    part += row_loss.loss(a, holder);
    if (inside && lane == 0 && (target < 0 || target >= a.classes)) part = nan_of<double>();
  }
  leave_sum(part, a.loss, a.partials, a.divisor);
}

template <class T>
__global__ void __launch_bounds__(kLongRowThreads) cross_entropy_long_rows(Arguments<T> a) {
  using C = Compute<T>;
  using Op = ExpSum<C>;
  __shared__ typename Op::State room[32];
  double part = 0;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* from = a.logits + row * a.classes;
    T* to = a.log_probs + row * a.classes;
    const std::int64_t target = a.target[row];
    typename Op::State state = Op::none();
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < a.classes; i += kLongRowThreads) Op::add(state, load_of(from[i]));
    state = merged_block<Op>(state, room);
    const C shift = log_of(Op::total(state));
    RowLoss<T> row_loss;
    bool holder = false;
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < a.classes; i += kLongRowThreads) {
      row_loss.take(a, to + i, i == target, load_of(from[i]) - state.largest - shift);
      holder = holder || i == target;
    }
    part += row_loss.loss(a, holder);
    if (threadIdx.x == 0 && (target < 0 || target >= a.classes)) part = nan_of<double>();
  }
  leave_sum(part, a.loss, a.partials, a.divisor);
}

/// `lanes` threads a row, up to a block.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_grad_kernel(T* out, const T* grad, const T* log_probs, const std::int64_t* target, std::int64_t rows,
                              std::int64_t classes, double divisor, double own_weight, double all_weight,
                              unsigned lanes) {
  using C = Compute<T>;
  const C scale = load_of(*grad) / static_cast<C>(divisor);
  const C all = static_cast<C>(all_weight);
  const C own = static_cast<C>(own_weight);
  const unsigned lane = threadIdx.x & (lanes - 1);
  const unsigned rows_in_block = kThreads / lanes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * rows_in_block;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows_in_block + threadIdx.x / lanes; row < rows;
       row += step) {
    const std::int64_t label = target[row];
    const C row_scale = label >= 0 && label < classes ? scale : nan_of<C>();
    const std::int64_t base = row * classes;
#pragma unroll 4
    for (std::int64_t i = lane; i < classes; i += lanes) {
      C value = exp_of(load_of(log_probs[base + i])) - all;
      if (i == label) value -= own;
      out[base + i] = store_of<T>(row_scale * value);
    }
  }
}

bool valid(const CrossEntropy& options) {
  return options.rows >= 0 && options.classes >= 0 && options.smoothing >= 0 && options.smoothing <= 1;
}
double divisor_of(const CrossEntropy& options) { return options.mean ? static_cast<double>(options.rows) : 1.0; }
double weight_of_all(const CrossEntropy& options) {
  return options.smoothing == 0 ? 0.0 : options.smoothing / static_cast<double>(options.classes);
}

}  // namespace

unsigned cross_entropy_blocks(std::int64_t rows, std::int64_t classes) {
  if (classes > kShortRow) return summing_blocks(rows, 1, 1);
  const unsigned lanes = lanes_for(classes);
  return summing_blocks(rows, kThreads / lanes, (classes > kFewClasses ? kThreads : kThreadsAlone) / lanes);
}

cudaError_t cross_entropy(void* loss, double* partials, void* log_probs, const void* logits, const std::int64_t* target,
                          const CrossEntropy& options, Type type, cudaStream_t stream) {
  if (!valid(options)) return cudaErrorInvalidValue;
  const unsigned blocks = cross_entropy_blocks(options.rows, options.classes);
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const Arguments<T> arguments{static_cast<const T*>(logits),
                                 target,
                                 static_cast<T*>(log_probs),
                                 static_cast<T*>(loss),
                                 partials,
                                 options.rows,
                                 options.classes,
                                 divisor_of(options),
                                 1 - options.smoothing,
                                 weight_of_all(options)};
    const unsigned lanes = lanes_for(options.classes);
    const auto threads = [&](unsigned most) {
      return blocks > 1 ? kThreads : threads_alone(options.rows < 4096 ? options.rows * lanes : 4096, most);
    };
    if (options.classes <= kFewClasses) {
      cross_entropy_short_rows<T, 4, kThreadsAlone><<<blocks, threads(kThreadsAlone), 0, stream>>>(arguments, lanes);
    } else if (options.classes <= kShortRow) {
      cross_entropy_short_rows<T, 32, kThreads><<<blocks, threads(kThreads), 0, stream>>>(arguments, lanes);
    } else {
      cross_entropy_long_rows<<<blocks, kLongRowThreads, 0, stream>>>(arguments);
    }
    return cudaGetLastError();
  });
}

cudaError_t cross_entropy_grad(void* out, const void* grad, const void* log_probs, const std::int64_t* target,
                               const CrossEntropy& options, Type type, cudaStream_t stream) {
  if (!valid(options)) return cudaErrorInvalidValue;
  if (options.rows == 0 || options.classes == 0) return cudaSuccess;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const unsigned lanes = power_of_two_from((options.classes + 3) / 4, kThreads);
    cross_entropy_grad_kernel<<<blocks_of(options.rows, kThreads / lanes), kThreads, 0, stream>>>(
        static_cast<T*>(out), static_cast<const T*>(grad), static_cast<const T*>(log_probs), target, options.rows,
        options.classes, divisor_of(options), 1 - options.smoothing, weight_of_all(options), lanes);
    return cudaGetLastError();
  });
}

}  // namespace ddp::kernels
