#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// Adding up what several ranks have, element by element, over contiguous memory. Each queues on `stream` of the
/// current device, never blocks, and returns the launch's error, or cudaErrorInvalidValue for what it does not take.
/// Zero elements launch nothing. Results do not depend on timing: sources are taken in the order given.
namespace ddp::kernels {

enum class Combine : std::uint8_t { sum, product, min, max };

/// Addresses that one launch takes.
inline constexpr int kMaxCombined = 16;
struct CombineTable {
  int sources = 0;  ///< 1 to kMaxCombined
  int outputs = 0;  ///< 1 to kMaxCombined; 0 with `carry`
  const void* source[kMaxCombined] = {};
  void* output[kMaxCombined] = {};
  /// For more sources than one launch takes, memory of the type that is computed in (float for 16-bit floats, else the
  /// type itself): what is combined before the first source, and where the result goes instead of the outputs, not
  /// divided. The two may be one.
  const void* carried = nullptr;
  void* carry = nullptr;
};

/// Each output[i] = ((source0[i] op source1[i]) op source2[i]) ..., then divided by `divisor` (floating types only;
/// 1: not divided). Floating types below 64 bits are computed in float and rounded once. Whole numbers wrap; of bool
/// sum and max are "or", product and min are "and". A NaN in any source wins in min and max. Outputs may be sources.
cudaError_t combine(const CombineTable& table, Type type, Combine op, std::int64_t count, int divisor,
                    cudaStream_t stream);

/// x[i] = x[i] / divisor, the true quotient rounded once; floating types.
cudaError_t divide(void* x, Type type, std::int64_t count, int divisor, cudaStream_t stream);

}  // namespace ddp::kernels
