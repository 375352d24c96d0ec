// Copies with conversion. The source's type is looked at in the kernel, so that there are eight kernels and not
// one per pair of types.
#include "convert.cuh"

#include "map.cuh"

namespace ddp::kernels {
namespace {

constexpr int kPack = 4;

template <class From, class To, int Width>
__device__ void load_as(const void* source, std::int64_t at, bool repeated, To (&out)[Width]) {
  if constexpr (!std::is_same_v<From, To>) {
    const From* from = static_cast<const From*>(source) + at;
    if (repeated) {
      const To value = Convert<To, From>::apply(*from);
#pragma unroll
      for (int w = 0; w < Width; ++w) out[w] = value;
    } else {
      const auto pack = *reinterpret_cast<const Pack<From, Width>*>(from);
#pragma unroll
      for (int w = 0; w < Width; ++w) out[w] = Convert<To, From>::apply(pack.values[w]);
    }
  }
}

template <class To, int Width>
__device__ void load(const void* source, Type from, std::int64_t at, bool repeated, To (&out)[Width]) {
  switch (from) {
    case Type::float32:
      return load_as<float>(source, at, repeated, out);
    case Type::float64:
      return load_as<double>(source, at, repeated, out);
    case Type::float16:
      return load_as<__half>(source, at, repeated, out);
    case Type::bfloat16:
      return load_as<__nv_bfloat16>(source, at, repeated, out);
    case Type::int32:
      return load_as<std::int32_t>(source, at, repeated, out);
    case Type::int64:
      return load_as<std::int64_t>(source, at, repeated, out);
    case Type::uint8:
      return load_as<std::uint8_t>(source, at, repeated, out);
    case Type::boolean:
      return load_as<bool>(source, at, repeated, out);
  }
}

template <class To, int Width>
__global__ void __launch_bounds__(kMapThreads)
    convert_kernel(To* destination, const void* source, Type from, MapPlan<2> plan) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kMapThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kMapThreads + threadIdx.x; i < plan.walk.count;
       i += step) {
    std::int64_t at[2];
    plan.walk.offsets(i, at);
    Pack<To, Width> pack;
    load<To, Width>(source, from, at[1], Width > 1 && plan.repeated[1], pack.values);
    *reinterpret_cast<Pack<To, Width>*>(destination + at[0]) = pack;
  }
  if constexpr (Width > 1) {
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x < plan.tail) {
      const std::int64_t i = plan.whole + threadIdx.x;
      To value[1];
      load<To, 1>(source, from, plan.repeated[1] ? 0 : i, false, value);
      destination[i] = value[0];
    }
  }
}

}  // namespace

cudaError_t convert(const Array& destination, Type to, const ConstArray& source, Type from, const Sizes& sizes,
                    cudaStream_t stream) {
  MapPlan<2> plan;
  if (!plan.walk.set(sizes, {&destination.strides, &source.strides}, true)) return cudaErrorInvalidValue;
  if (plan.walk.count == 0) return cudaSuccess;
  std::size_t from_bytes = 0;
  const cudaError_t known = with_type(from, [&](auto* tag) {
    from_bytes = sizeof(*tag);
    return cudaSuccess;
  });
  if (known != cudaSuccess) return known;
  return with_type(to, [&](auto* tag) {
    using To = std::remove_pointer_t<decltype(tag)>;
    plan.try_packs(kPack, {destination.data, source.data}, {sizeof(To), from_bytes});
    To* out = static_cast<To*>(destination.data);
    const unsigned blocks = map_blocks(plan.walk.count);
    if (plan.width > 1) {
      convert_kernel<To, kPack><<<blocks, kMapThreads, 0, stream>>>(out, source.data, from, plan);
    } else {
      convert_kernel<To, 1><<<blocks, kMapThreads, 0, stream>>>(out, source.data, from, plan);
    }
    return cudaGetLastError();
  });
}

}  // namespace ddp::kernels
