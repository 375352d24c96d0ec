#pragma once

#include "tensor/backend/backend.h"
#include "tensor/copy.h"

namespace ddp::raw {

/// Movement of elements within one device (or between two CPU devices, whose memory is one).
class CopyBackend {
 public:
  virtual ~CopyBackend() = default;
  virtual void fill(const Tensor& x, double /*value*/) { missing("fill_", x); }
  /// Same sizes; converts dtype; the memories do not meet. `source` may have stride 0.
  virtual void copy(const Tensor& destination, const Tensor& /*source*/) { missing("copy_", destination); }
  /// out[i] = x[index[i]]; x row-major, index int64. An index out of range throws on the CPU. A GPU finds it when
  /// the host has long gone on: there the row becomes NaN (floating point) or 0 (whole numbers, bool).
  virtual void index_rows(const Tensor& /*x*/, const Tensor& /*index*/, const Tensor& out) {
    missing("index_rows", out);
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("copy", operation, where.device());
  }
};

CopyBackend& cpu_copy();
CopyBackend& cuda_copy();
inline CopyBackend& copy_backend(Device device) { return device.is_cuda() ? cuda_copy() : cpu_copy(); }

}  // namespace ddp::raw
