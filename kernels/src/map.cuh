#pragma once

#include "strided.cuh"

/// out[i] = f(in0[i], ...) over strided arrays of one shape. Where every array is, along the innermost
/// dimension, either dense and aligned or one repeated element, a thread moves 16 bytes at a time.
namespace ddp::kernels {

/// What a type is computed in: float for the 16-bit floats.
template <class T>
struct ComputeOf {
  using Type = T;
};
template <>
struct ComputeOf<__half> {
  using Type = float;
};
template <>
struct ComputeOf<__nv_bfloat16> {
  using Type = float;
};
template <class T>
using Compute = typename ComputeOf<T>::Type;

/// Consecutive elements that one instruction moves.
template <class T, int Width>
struct alignas(sizeof(T) * Width) Pack {
  T values[Width];
};

/// The unsigned number of so many bytes: where only bits are moved.
template <std::size_t Bytes>
using UnsignedOf = std::conditional_t<
    Bytes == 1, std::uint8_t,
    std::conditional_t<Bytes == 2, std::uint16_t, std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

template <int N>
struct MapPlan {
  Walk<N> walk;            // over packs, or over elements when width is 1
  bool repeated[N] = {};   // one element for the whole pack
  std::int64_t tail = 0;   // elements behind the last pack
  std::int64_t whole = 0;  // elements in packs
  int width = 1;

  /// Goes over to packs of `pack` elements if all arrays allow it. `addresses` and `bytes` (of an element)
  /// as for the walk.
  void try_packs(int pack, const void* const (&addresses)[N], const std::size_t (&bytes)[N]) {
    if (walk.rank == 0) return;
    const int last = walk.rank - 1;
    const bool flat = last == 0;
    if (flat ? walk.sizes[0] < pack : walk.sizes[last] % pack != 0) return;
    for (int n = 0; n < N; ++n) {
      const std::int64_t stride = walk.strides[n][last];
      repeated[n] = n > 0 && stride == 0;
      if (repeated[n]) continue;
      if (stride != 1 || reinterpret_cast<std::uintptr_t>(addresses[n]) % (bytes[n] * pack) != 0) return;
      for (int d = 0; d < last; ++d) {
        if (walk.strides[n][d] % pack != 0) return;
      }
    }
    width = pack;
    whole = walk.count / pack * pack;
    tail = walk.count - whole;
    walk.count /= pack;
    walk.sizes[last] /= pack;
    for (int n = 0; n < N; ++n) walk.strides[n][last] *= pack;
    walk.finish();
  }
};

inline constexpr unsigned kMapThreads = 128;

inline unsigned map_blocks(std::int64_t items) {
  constexpr std::int64_t kMostBlocks = 4096;
  const std::int64_t blocks = (items + kMapThreads - 1) / kMapThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

template <class T, int N>
struct Sources {
  const T* data[N];
};

/// `body(values, results)` gets the elements of the inputs in the type that T is computed in, Width of each, and
/// writes as many results, of the same type or bool.
template <class Out, class T, int Inputs, int Width, class Body>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(Out* out, Sources<T, Inputs> in, MapPlan<Inputs + 1> plan, Body body) {
  using C = Compute<T>;
  using R = std::conditional_t<std::is_same_v<Out, bool>, bool, C>;
  // Several packs under way per thread hide the memory's latency; small arrays get one each.
  constexpr int kUnroll = Width > 1 ? 2 : 1;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kMapThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kMapThreads + threadIdx.x; i < plan.walk.count;
       i += step * kUnroll) {
    Pack<T, Width> raw[kUnroll][Inputs];
    std::int64_t to[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * step >= plan.walk.count) break;
      std::int64_t at[Inputs + 1];
      plan.walk.offsets(i + u * step, at);
      to[u] = at[0];
#pragma unroll
      for (int n = 0; n < Inputs; ++n) {
        const T* from = in.data[n] + at[n + 1];
        if (Width > 1 && plan.repeated[n + 1]) {
          const T value = *from;
#pragma unroll
          for (int w = 0; w < Width; ++w) raw[u][n].values[w] = value;
        } else {
          raw[u][n] = *reinterpret_cast<const Pack<T, Width>*>(from);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * step >= plan.walk.count) break;
      C values[Inputs][Width];
#pragma unroll
      for (int n = 0; n < Inputs; ++n) {
#pragma unroll
        for (int w = 0; w < Width; ++w) values[n][w] = Convert<C, T>::apply(raw[u][n].values[w]);
      }
      R results[Width];
      body(values, results);
      Pack<Out, Width> packed;
#pragma unroll
      for (int w = 0; w < Width; ++w) packed.values[w] = Convert<Out, R>::apply(results[w]);
      *reinterpret_cast<Pack<Out, Width>*>(out + to[u]) = packed;
    }
  }
  if constexpr (Width > 1) {
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x < plan.tail) {
      const std::int64_t i = plan.whole + threadIdx.x;
      C values[Inputs][1];
#pragma unroll
      for (int n = 0; n < Inputs; ++n) {
        values[n][0] = Convert<C, T>::apply(in.data[n][plan.repeated[n + 1] ? 0 : i]);
      }
      R results[1];
      body(values, results);
      out[i] = Convert<Out, R>::apply(results[0]);
    }
  }
}

/// Launches over `sizes`. Zero elements launch nothing. Arithmetic on whole numbers, which training has little of,
/// goes without packs unless `Packs` asks for them: half the code to compile.
template <class Out, class T, bool Packs = !std::is_integral_v<T>, int Inputs = 1, class Body>
cudaError_t launch_map(const Array& out, const ConstArray* const (&in)[Inputs], const Sizes& sizes, const Body& body,
                       cudaStream_t stream) {
  MapPlan<Inputs + 1> plan;
  Sources<T, Inputs> sources;
  const Strided* strides[Inputs + 1] = {&out.strides};
  const void* addresses[Inputs + 1] = {out.data};
  std::size_t bytes[Inputs + 1] = {sizeof(Out)};
  for (int n = 0; n < Inputs; ++n) {
    sources.data[n] = static_cast<const T*>(in[n]->data);
    strides[n + 1] = &in[n]->strides;
    addresses[n + 1] = in[n]->data;
    bytes[n + 1] = sizeof(T);
  }
  if (!plan.walk.set(sizes, strides, true)) return cudaErrorInvalidValue;
  if (plan.walk.count == 0) return cudaSuccess;
  Out* to = static_cast<Out*>(out.data);
  if constexpr (Packs) {
    constexpr int kWidth = 16 / sizeof(T);
    plan.try_packs(kWidth, addresses, bytes);
    if (plan.width > 1) {
      map_kernel<Out, T, Inputs, kWidth>
          <<<map_blocks(plan.walk.count), kMapThreads, 0, stream>>>(to, sources, plan, body);
      return cudaGetLastError();
    }
  }
  map_kernel<Out, T, Inputs, 1><<<map_blocks(plan.walk.count), kMapThreads, 0, stream>>>(to, sources, plan, body);
  return cudaGetLastError();
}

/// The floating-point device types.
template <class Use>
cudaError_t with_floating(Type type, const Use& use) {
  switch (type) {
    case Type::float32:
      return use(static_cast<float*>(nullptr));
    case Type::float64:
      return use(static_cast<double*>(nullptr));
    case Type::float16:
      return use(static_cast<__half*>(nullptr));
    case Type::bfloat16:
      return use(static_cast<__nv_bfloat16*>(nullptr));
    default:
      return cudaErrorInvalidValue;
  }
}

/// The whole-number device types, without bool.
template <class Use>
cudaError_t with_integral(Type type, const Use& use) {
  switch (type) {
    case Type::int32:
      return use(static_cast<std::int32_t*>(nullptr));
    case Type::int64:
      return use(static_cast<std::int64_t*>(nullptr));
    case Type::uint8:
      return use(static_cast<std::uint8_t*>(nullptr));
    default:
      return cudaErrorInvalidValue;
  }
}

/// All but bool.
template <class Use>
cudaError_t with_numeric(Type type, const Use& use) {
  return type <= Type::bfloat16 ? with_floating(type, use) : with_integral(type, use);
}

}  // namespace ddp::kernels
