#pragma once

#include "ddp_kernels/foreach.h"
#include "map.cuh"

/// How the tables of foreach.h reach the device and how a block finds its piece.
namespace ddp::kernels {

inline constexpr int kForeachThreads = 256;

/// The first N chunks of an UpdateTable or ArrayTable, with its layout.
template <class Chunk, int N>
struct TablePart {
  std::int32_t count;
  std::int32_t blocks;
  std::int64_t block_elements;
  Chunk chunks[N];
};

/// The part of a chunk that a block works on.
template <class Chunk>
struct Piece {
  Chunk chunk;
  std::int64_t begin;
  std::int64_t end;
};

template <class Chunk, int N>
__device__ Piece<Chunk> find_piece(const TablePart<Chunk, N>& table) {
  const std::int32_t block = static_cast<std::int32_t>(blockIdx.x);
  // The last chunk whose first block is not behind this one.
  int low = 0;
  int high = table.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.chunks[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  Piece<Chunk> piece;
  piece.chunk = table.chunks[low];
  piece.begin = (block - piece.chunk.first_block) * table.block_elements;
  piece.end = min(piece.begin + table.block_elements, piece.chunk.numel);
  return piece;
}

/// use(null pointer of the device type).
template <class Use>
__device__ void with_floating_on_device(Type type, const Use& use) {
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
      return;
  }
}

/// Chunks in the small, middle and large instances of the kernels. The small one keeps to the 4 KiB of parameters
/// that every driver takes.
inline constexpr int kSmallUpdate = 50;
inline constexpr int kMiddleUpdate = 208;
inline constexpr int kSmallArray = 160;

template <class T>
inline constexpr int kPackWidth = 16 / sizeof(T);
/// Packs of each array that a thread loads before it computes.
template <class T>
inline constexpr int kPacksUnderWay = kPackWidth<T> >= 8 ? 1 : 2;

template <class Chunk>
bool takes(const Chunk* chunks, std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) {
    const Type type = chunks[i].type;
    const bool floating =
        type == Type::float32 || type == Type::float64 || type == Type::float16 || type == Type::bfloat16;
    if (!floating || chunks[i].numel < 1) return false;
  }
  return true;
}

/// Launches `kernels[k]`, the instance for the smallest number of chunks that holds the table. The instance reads
/// just its prefix of the table.
template <int N>
cudaError_t launch_table(const void* const (&kernels)[N], const int (&capacities)[N], const void* table,
                         std::int32_t count, std::int32_t blocks, void* second, cudaStream_t stream) {
  int k = 0;
  while (k < N && capacities[k] < count) ++k;
  if (k == N) return cudaErrorInvalidValue;
  // The runtime only reads the arguments.
  void* arguments[] = {const_cast<void*>(table), second};
  return cudaLaunchKernel(kernels[k], dim3(static_cast<unsigned>(blocks)), dim3(kForeachThreads), arguments, 0, stream);
}

}  // namespace ddp::kernels
