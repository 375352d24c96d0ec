#pragma once

#include <source_location>
#include <vector>

#include "ddp/tensor/tensor.h"

/// Raw movement of elements; rules as in elementwise.h.
namespace ddp::raw {

void fill_(const Tensor& x, double value);
/// Same or broadcastable sizes; converts dtype; copies across devices. Overlapping views of one storage are
/// copied as if the source were read first. From floating point to whole numbers: towards zero, saturating,
/// NaN gives 0; to bool: "not zero".
/// Between a device and pageable CPU memory the host blocks, which is reported with `where`; pinned memory must stay as
/// it is until the device's current stream has passed the copy, and is kept from being reused before.
void copy_(const Tensor& destination, const Tensor& source,
           std::source_location where = std::source_location::current());
/// The tensor itself when it is row-major, else a row-major copy.
Tensor contiguous(const Tensor& x);
Tensor clone(const Tensor& x);
Tensor to(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device, std::source_location where = std::source_location::current());

// Views: no data moves.
Tensor view(const Tensor& x, const Dims& sizes);     ///< throws unless strides allow it
Tensor reshape(const Tensor& x, const Dims& sizes);  ///< view where possible, else a copy; one size may be -1
Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b);
Tensor permute(const Tensor& x, const Dims& order);
Tensor expand(const Tensor& x, const Dims& sizes);
Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t begin, std::int64_t end, std::int64_t step);
Tensor cat(const std::vector<Tensor>& parts, std::int64_t dim);
/// Rows `index` (int64, 1-d) of `x` along dimension 0. An index out of range throws on the CPU; on a GPU its row
/// is NaN (floating point) or 0.
Tensor index_rows(const Tensor& x, const Tensor& index);

}  // namespace ddp::raw
