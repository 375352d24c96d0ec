#pragma once

#include <cstdint>

#include "ddp/tensor/dims.h"

namespace ddp::raw {

/// Product of the sizes. Throws InvalidArgument where 64 bits do not hold it: a product that has wrapped round would
/// give memory that is too small for its sizes. For sizes that come from outside.
std::int64_t checked_numel(const Dims& sizes);

}  // namespace ddp::raw
