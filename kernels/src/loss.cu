#include "ddp_kernels/loss.h"

#include "block_sum.cuh"

namespace ddp::kernels {
namespace {

constexpr unsigned kSumThreads = 512;
constexpr std::int64_t kPerThread = 16;  // elements

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    mse_loss_kernel(T* loss, double* partials, const T* x, const T* target, std::int64_t count, double divisor) {
  using C = Compute<T>;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kSumThreads;
  double part = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kSumThreads + threadIdx.x; i < count; i += 4 * step) {
    C squares[4];  // four elements under way at a time; their sum goes to a wider one
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const std::int64_t at = i + u * step;
      const C distance = at < count ? load_of(x[at]) - load_of(target[at]) : C{0};
      squares[u] = distance * distance;
    }
    part += static_cast<double>((squares[0] + squares[1]) + (squares[2] + squares[3]));
  }
  leave_sum(part, loss, partials, divisor);
}

template <class T>
struct MseGrad {
  const T* grad;
  Compute<T> divisor;

  template <class C, int Width>
  __device__ void operator()(const C (&values)[2][Width], C (&results)[Width]) const {
    const C scale = 2 * load_of(*grad) / divisor;
    each(values, results, [scale](C x, C target) { return scale * (x - target); });
  }
};

/// The first largest number with its place; NaN is the largest.
template <class C>
struct Largest {
  struct State {
    C value;
    std::int64_t at;
  };
  static __device__ State none() { return {-infinity_of<C>(), std::int64_t{1} << 62}; }
  static __device__ State merged(State a, State b) {
    const bool a_nan = a.value != a.value;
    const bool b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.value != b.value) return a.value > b.value ? a : b;
    return a.at < b.at ? a : b;
  }
  static __device__ State exchanged(State state, unsigned mask) {
    return {kernels::exchanged(state.value, mask), kernels::exchanged(state.at, mask)};
  }
};

template <class T>
__global__ void __launch_bounds__(kSumThreads)
    count_correct_kernel(std::int64_t* out, double* partials, const T* logits, const std::int64_t* target,
                         std::int64_t rows, std::int64_t classes, unsigned lanes) {
  using Op = Largest<Compute<T>>;
  const unsigned lane = threadIdx.x & (lanes - 1);
  const unsigned rows_in_block = kSumThreads / lanes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * rows_in_block;
  double correct = 0;  // whole, so that it is exact to 2^53
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows_in_block; first < rows; first += step) {
    const std::int64_t row = first + threadIdx.x / lanes;
    const std::int64_t count = row < rows ? classes : 0;
    typename Op::State state = Op::none();
#pragma unroll 4
    for (std::int64_t i = lane; i < count; i += lanes) {
      state = Op::merged(state, {load_of(logits[row * classes + i]), i});
    }
    state = merged_lanes<Op>(state, lanes);
    if (count > 0 && lane == 0 && state.at == target[row]) correct += 1;
  }
  leave_sum(correct, out, partials, 1);
}

__global__ void __launch_bounds__(kSumThreads)
    finish_sum_kernel(void* out, Type type, const double* partials, unsigned count, double divisor) {
  __shared__ double room[32];
  double part = 0;
  for (unsigned i = threadIdx.x; i < count; i += kSumThreads) part += partials[i];
  part = merged_block<SumOf<double>>(part, room) / divisor;
  if (threadIdx.x != 0) return;
  switch (type) {
    case Type::float32:
      *static_cast<float*>(out) = static_cast<float>(part);
      return;
    case Type::float64:
      *static_cast<double*>(out) = part;
      return;
    case Type::float16:
      *static_cast<__half*>(out) = Convert<__half, double>::apply(part);
      return;
    case Type::bfloat16:
      *static_cast<__nv_bfloat16*>(out) = Convert<__nv_bfloat16, double>::apply(part);
      return;
    default:
      *static_cast<std::int64_t*>(out) = static_cast<std::int64_t>(part);
  }
}

unsigned lanes_for(std::int64_t classes) { return power_of_two_from((classes + 3) / 4, 32); }

}  // namespace

unsigned mse_loss_blocks(std::int64_t count) {
  return summing_blocks(count, kSumThreads * kPerThread, kSumThreads * 8);
}

cudaError_t mse_loss(void* loss, double* partials, const void* x, const void* target, std::int64_t count, bool mean,
                     Type type, cudaStream_t stream) {
  if (count < 0) return cudaErrorInvalidValue;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    mse_loss_kernel<<<mse_loss_blocks(count), kSumThreads, 0, stream>>>(
        static_cast<T*>(loss), partials, static_cast<const T*>(x), static_cast<const T*>(target), count,
        mean ? static_cast<double>(count) : 1.0);
    return cudaGetLastError();
  });
}

cudaError_t mse_loss_grad(void* out, const void* grad, const void* x, const void* target, std::int64_t count, bool mean,
                          Type type, cudaStream_t stream) {
  if (count < 0) return cudaErrorInvalidValue;
  const Strided dense{{1}};
  const Sizes sizes{1, {count}};
  const ConstArray a{x, dense};
  const ConstArray b{target, dense};
  const ConstArray* const in[] = {&a, &b};
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const MseGrad<T> body{static_cast<const T*>(grad), static_cast<Compute<T>>(mean ? static_cast<double>(count) : 1)};
    return launch_map<T, T>({out, dense}, in, sizes, body, stream);
  });
}

unsigned count_correct_blocks(std::int64_t rows, std::int64_t classes) {
  const unsigned together = kSumThreads / lanes_for(classes);
  return summing_blocks(rows, together, together);
}

cudaError_t count_correct(std::int64_t* out, double* partials, const void* logits, const std::int64_t* target,
                          std::int64_t rows, std::int64_t classes, Type type, cudaStream_t stream) {
  if (rows < 0 || classes < 0) return cudaErrorInvalidValue;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    count_correct_kernel<<<count_correct_blocks(rows, classes), kSumThreads, 0, stream>>>(
        out, partials, static_cast<const T*>(logits), target, rows, classes, lanes_for(classes));
    return cudaGetLastError();
  });
}

cudaError_t finish_sum(void* out, Type type, const double* partials, unsigned count, double divisor,
                       cudaStream_t stream) {
  if (type > Type::bfloat16 && type != Type::int64) return cudaErrorInvalidValue;
  finish_sum_kernel<<<1, kSumThreads, 0, stream>>>(out, type, partials, count, divisor);
  return cudaGetLastError();
}

}  // namespace ddp::kernels
