#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ddp_kernels/types.h"

/// One launch over many arrays. The table of arrays travels as a kernel parameter, so nothing has to be uploaded;
/// a launch copies only as much of it as is used, in three steps of size. All arrays are dense; types may be mixed
/// within a table: float32, float64 (computed as such), float16 and bfloat16 (computed in float). Work is cut into
/// pieces of one size whatever the arrays' sizes are. Each call queues on `stream` of the current device, never
/// blocks, and returns the launch's error, or cudaErrorInvalidValue for a table or type that it does not take.
/// An empty table launches nothing. Results do not depend on timing.
namespace ddp::kernels {

/// Elements are handed out to blocks in a multiple of this, which fills a block's threads with 16 bytes each.
inline constexpr std::int64_t kForeachTile = 2048;

/// Arrays of one parameter, all of `numel` elements of one type.
struct UpdateChunk {
  void* parameter;
  const void* gradient;
  void* state0;                  // momentum or first moment; may be null for sgd without momentum
  void* state1;                  // second moment, adam only
  const std::uint32_t* refusal;  // null, or: the chunk is left as it is when this word is not 0
  std::uint32_t* refused;        // null, or: raised by 1 when that happens
  std::int64_t numel;            // at least 1
  double rate;                   // adam: -lr / (1 - beta1^step)
  double root;                   // adam: 1 / sqrt(1 - beta2^step)
  std::int32_t first_block;      // set by `plan`
  Type type;
  bool first;   // sgd: state0 is set instead of updated
  bool packed;  // set by `plan`: all addresses allow loads of 16 bytes
};
/// What is passed to a kernel is a prefix of this struct.
struct UpdateTable {
  static constexpr int kCapacity = 408;
  std::int32_t count = 0;
  std::int32_t blocks = 0;          // set by `plan`
  std::int64_t block_elements = 0;  // set by `plan`
  UpdateChunk chunks[kCapacity];
};

struct ArrayChunk {
  void* data;
  std::int64_t numel;  // at least 1
  std::int32_t first_block;
  Type type;
  bool packed;
};
struct ArrayTable {
  static constexpr int kCapacity = 1344;
  std::int32_t count = 0;
  std::int32_t blocks = 0;
  std::int64_t block_elements = 0;
  ArrayChunk chunks[kCapacity];
};

/// The most chunks of one launch with this machine's driver: parameters over 4 KiB need CUDA 12.1's.
int update_capacity();
int array_capacity();

/// Cuts the `count` chunks of a table into blocks.
void plan(UpdateTable& table);
void plan(ArrayTable& table);

struct SgdScalars {
  double lr;
  double momentum;
  double dampening;
  double weight_decay;
  bool nesterov;
};
/// g += weight_decay * p; v = first ? g : momentum * v + (1 - dampening) * g; p -= lr * (nesterov ? g + momentum * v
/// : v). Momentum 0: p -= lr * g, no state.
cudaError_t sgd(const UpdateTable& table, const SgdScalars& scalars, cudaStream_t stream);

struct AdamScalars {
  double beta1;
  double beta2;
  double eps;
  double decay;   // added to the gradient, times the parameter
  double shrink;  // the parameter's factor before the update: 1, or 1 - lr * weight_decay
};
/// g += decay * p; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
/// p = shrink * p + rate * m / (sqrt(v) * root + eps).
cudaError_t adam(const UpdateTable& table, const AdamScalars& scalars, cudaStream_t stream);

/// partials[block] = sum of squares of the block's piece, for the table's `blocks`.
cudaError_t squares(const ArrayTable& table, double* partials, cudaStream_t stream);
/// *norm = square root of the sum of `count` partial sums, 0 of none.
cudaError_t norm_of_partials(const double* partials, std::int64_t count, double* norm, cudaStream_t stream);

/// x *= factor.
cudaError_t scale(const ArrayTable& table, double factor, cudaStream_t stream);
/// x *= max_norm / (*norm + 1e-6) where that is not 1 or more, which includes NaN.
cudaError_t scale_to_norm(const ArrayTable& table, const double* norm, double max_norm, cudaStream_t stream);

}  // namespace ddp::kernels
