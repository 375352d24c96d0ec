#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ddp_kernels/types.h"

/// Reductions. Rules as in elementwise.h. Sums of float32 and narrower are kept in float32, of float64 in float64,
/// of whole numbers and bool in int64; parts are added as trees in an order that depends on the sizes and strides
/// alone, so that every run gives the same bits.
///
/// A long reduction is cut into parts, whose results lie in scratch memory before a second launch adds them. Such
/// a function takes `scratch` of *scratch_bytes bytes: when they do not suffice it launches nothing, and says in
/// *scratch_bytes how many it needs. Needing none it has done its work in one launch, else in two.
namespace ddp::kernels {

/// out = or += sum of x over the dimensions where `out_sizes` has 1 and `sizes` more; elsewhere both agree. `out` is
/// of the type of x, or int64 for whole numbers and bool. No size is 0.
cudaError_t sum(const Array& out, const Sizes& out_sizes, const ConstArray& x, const Sizes& sizes, Type type,
                bool accumulate, void* scratch, std::size_t* scratch_bytes, cudaStream_t stream);

/// The largest elements along `dim` and where they are (int64): of equal ones the first; the first NaN wins over
/// numbers. `values` and `indices` have size 1 at `dim`.
cudaError_t max(const Array& values, const Array& indices, const ConstArray& x, const Sizes& sizes, int dim, Type type,
                cudaStream_t stream);

/// out[.., indices[i], ..] = grad[i] along `dim`; grad and indices (int64) have the sizes of out with 1 at `dim`. An
/// index out of range makes the first element along `dim` NaN for a floating-point type, else nothing happens.
cudaError_t scatter_by_index(const Array& out, const Sizes& out_sizes, int dim, const ConstArray& grad,
                             const ConstArray& indices, Type type, cudaStream_t stream);

/// Sum of squares in float64, of any floating-point type.
cudaError_t sum_of_squares(double* out, const ConstArray& x, const Sizes& sizes, Type type, void* scratch,
                           std::size_t* scratch_bytes, cudaStream_t stream);

/// Number of elements that are NaN or infinite, of any floating-point type.
cudaError_t count_nonfinite(std::int64_t* out, const ConstArray& x, const Sizes& sizes, Type type, void* scratch,
                            std::size_t* scratch_bytes, cudaStream_t stream);

}  // namespace ddp::kernels
