#include "ddp_kernels/copy.h"
#include "map.cuh"

namespace ddp::kernels {
namespace {

using Line = Pack<std::uint32_t, 4>;

template <class Unit>
__global__ void __launch_bounds__(kMapThreads)
    index_rows_kernel(Unit* out, const Unit* x, std::int64_t rows, std::int64_t units, Walk<1> walk,
                      const std::int64_t* index, std::int64_t index_stride, Unit outside) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kMapThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kMapThreads + threadIdx.x; i < walk.count; i += step) {
    const std::int64_t row = walk.narrow ? walk.divisors[1].quotient(static_cast<std::uint32_t>(i)) : i / units;
    const std::int64_t which = index[row * index_stride];
    out[i] = which >= 0 && which < rows ? x[which * units + (i - row * units)] : outside;
  }
}

/// Goes on with narrower units until rows and addresses are multiples of one.
template <class Unit, class... Narrower>
cudaError_t launch(void* out, const void* x, bool floating, std::int64_t rows, std::int64_t row_bytes,
                   const std::int64_t* index, std::int64_t index_stride, std::int64_t count, cudaStream_t stream) {
  const auto together = reinterpret_cast<std::uintptr_t>(out) | reinterpret_cast<std::uintptr_t>(x) |
                        static_cast<std::uintptr_t>(row_bytes);
  if constexpr (sizeof...(Narrower) > 0) {
    if (together % sizeof(Unit) != 0) {
      return launch<Narrower...>(out, x, floating, rows, row_bytes, index, index_stride, count, stream);
    }
  }
  const std::int64_t units = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
  Walk<1> walk;
  walk.rank = 2;
  walk.sizes[0] = count;
  walk.sizes[1] = units;
  walk.count = count * units;
  walk.finish();
  union {
    unsigned char bytes[sizeof(Unit)];
    Unit unit;
  } outside;
  for (unsigned char& byte : outside.bytes) byte = floating ? 0xff : 0;
  index_rows_kernel<Unit><<<map_blocks(walk.count), kMapThreads, 0, stream>>>(
      static_cast<Unit*>(out), static_cast<const Unit*>(x), rows, units, walk, index, index_stride, outside.unit);
  return cudaGetLastError();
}

}  // namespace

cudaError_t index_rows(void* out, const void* x, Type type, std::int64_t rows, std::int64_t row_bytes,
                       const std::int64_t* index, std::int64_t index_stride, std::int64_t count, cudaStream_t stream) {
  if (rows < 0 || row_bytes < 0 || count < 0) return cudaErrorInvalidValue;
  if (count == 0 || row_bytes == 0) return cudaSuccess;
  return launch<Line, std::uint64_t, std::uint32_t, std::uint16_t, std::uint8_t>(
      out, x, type <= Type::bfloat16, rows, row_bytes, index, index_stride, count, stream);
}

}  // namespace ddp::kernels
