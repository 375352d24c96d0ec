#pragma once

#include <string_view>

#include "ddp/core/device.h"
#include "ddp/core/error.h"

/// The seam between the operations and a kind of device. Per family there is
///  - `<family>.cpp`: checks arguments, allocates results, broadcasts, picks the backend by device type;
///  - `backend/<family>_backend.h`: a class of virtual functions, which get checked arguments and memory;
///  - `cpu/<family>.cpp` and `cuda/<family>.cpp`: its implementations, reached through `cpu_<family>()` and
///    `cuda_<family>()`. A build without CUDA has `cuda/no_cuda_<family>.cpp`, which returns the base class.
/// A function that a backend does not override throws NotAvailable naming operation, family and device.
namespace ddp::raw {

[[noreturn]] inline void not_available(std::string_view family, std::string_view operation, Device device) {
  detail::fail<NotAvailable>(operation, ": the family '", family, "' has no implementation for ", device,
                             device.is_cuda() ? " (not built with CUDA, or not there yet)" : "");
}

}  // namespace ddp::raw
