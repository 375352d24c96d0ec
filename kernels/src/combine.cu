#include "ddp_kernels/combine.h"
#include "strided.cuh"

namespace ddp::kernels {
namespace {

/// What a type is combined in.
template <class T>
struct Compute {
  using Type = T;
};
template <>
struct Compute<__half> {
  using Type = float;
};
template <>
struct Compute<__nv_bfloat16> {
  using Type = float;
};

template <Combine Op, class T>
__device__ T apply(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return Op == Combine::sum || Op == Combine::max ? a || b : a && b;
  } else if constexpr (Op == Combine::sum || Op == Combine::product) {
    if constexpr (std::is_integral_v<T>) {  // wraps; signed overflow would be undefined
      const auto x = static_cast<unsigned long long>(a);
      const auto y = static_cast<unsigned long long>(b);
      return static_cast<T>(Op == Combine::sum ? x + y : x * y);
    } else {
      return Op == Combine::sum ? a + b : a * b;
    }
  } else {
    const bool take_b = (Op == Combine::min ? b < a : b > a) || b != b;  // a NaN on either side wins
    return take_b ? b : a;
  }
}

template <class T>
__device__ T divided(T value, int divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return divisor == 1 ? value : value / static_cast<T>(divisor);
  } else {
    return value;
  }
}

template <Combine Op, class T>
__global__ void combine_kernel(CombineTable table, std::int64_t count, int divisor) {
  using C = typename Compute<T>::Type;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    C value = Convert<C, T>::apply(static_cast<const T*>(table.source[0])[i]);
    if (table.carried != nullptr) value = apply<Op>(static_cast<const C*>(table.carried)[i], value);
    for (int s = 1; s < table.sources; ++s) {
      value = apply<Op>(value, Convert<C, T>::apply(static_cast<const T*>(table.source[s])[i]));
    }
    if (table.carry != nullptr) {
      static_cast<C*>(table.carry)[i] = value;
      continue;
    }
    const T result = Convert<T, C>::apply(divided(value, divisor));
    for (int o = 0; o < table.outputs; ++o) static_cast<T*>(table.output[o])[i] = result;
  }
}

}  // namespace

cudaError_t combine(const CombineTable& table, Type type, Combine op, std::int64_t count, int divisor,
                    cudaStream_t stream) {
  const bool floating = type <= Type::bfloat16;
  if (table.sources < 1 || table.sources > kMaxCombined || table.outputs < (table.carry == nullptr ? 1 : 0) ||
      table.outputs > kMaxCombined || count < 0 || divisor < 1 || (divisor > 1 && !floating)) {
    return cudaErrorInvalidValue;
  }
  if (count == 0) return cudaSuccess;
  return with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const unsigned blocks = blocks_for(count);
    switch (op) {
      case Combine::sum:
        combine_kernel<Combine::sum, T><<<blocks, kThreads, 0, stream>>>(table, count, divisor);
        break;
      case Combine::product:
        combine_kernel<Combine::product, T><<<blocks, kThreads, 0, stream>>>(table, count, divisor);
        break;
      case Combine::min:
        combine_kernel<Combine::min, T><<<blocks, kThreads, 0, stream>>>(table, count, divisor);
        break;
      case Combine::max:
        combine_kernel<Combine::max, T><<<blocks, kThreads, 0, stream>>>(table, count, divisor);
        break;
    }
    return cudaGetLastError();
  });
}

cudaError_t divide(void* x, Type type, std::int64_t count, int divisor, cudaStream_t stream) {
  CombineTable table;
  table.sources = table.outputs = 1;
  table.source[0] = table.output[0] = x;
  if (type > Type::bfloat16) return cudaErrorInvalidValue;
  return combine(table, type, Combine::sum, count, divisor, stream);
}

}  // namespace ddp::kernels
