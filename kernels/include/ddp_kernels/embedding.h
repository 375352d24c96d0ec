#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// Look-up of table rows, and its gradient. Rules as in elementwise.h; floating-point types.
namespace ddp::kernels {

/// A table of `rows` rows of `width` elements.
struct Table {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

/// out[i] = table[index[i]], row-major; where the index is out of range the row's bytes become 0xff (NaN). A table
/// that is row-major is index_rows' work.
cudaError_t embedding(void* out, const void* table, const Table& shape, Type type, const std::int64_t* index,
                      std::int64_t count, cudaStream_t stream);

/// Where each row was looked up: positions[offsets[r] .. offsets[r + 1]) are the places of r in `index`, in
/// ascending order. `offsets` has rows + 1 elements, `positions` count. Indices out of range are left out.
///
/// A counting sort in one launch: each block has a range of rows, reads all of `index`, counts what lies below its
/// range, which says where its positions begin, and places its own in a second pass. So the indices are read
/// 2 * rows / 128 times, from the cache: less work than a radix sort's six or so launches for the few
/// thousand indices of a batch, more for millions. No atomics, so the order is always the same.
cudaError_t sort_indices(std::int64_t* offsets, std::int64_t* positions, const std::int64_t* index, std::int64_t count,
                         std::int64_t rows, cudaStream_t stream);

/// table[r] = or += sum of grad[p] over the positions of r, in an order that depends on their number alone. grad:
/// row-major rows of `width`.
cudaError_t embedding_grad(void* table, const Table& shape, Type type, const void* grad, const std::int64_t* offsets,
                           const std::int64_t* positions, bool accumulate, cudaStream_t stream);

}  // namespace ddp::kernels
