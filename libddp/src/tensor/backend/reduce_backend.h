#pragma once

#include "tensor/backend/backend.h"
#include "tensor/reduce.h"

namespace ddp::raw {

/// Results do not depend on the number of threads.
class ReduceBackend {
 public:
  virtual ~ReduceBackend() = default;
  /// out (sizes of x with size 1 at reduced dimensions, any strides) = or += sum of x over the dimensions
  /// where the sizes differ. x may be empty: the sum is 0.
  virtual void sum(const Tensor& /*x*/, const Tensor& out, bool /*accumulate*/) { missing("sum", out); }
  /// values and indices have size 1 at `dim`.
  virtual void max(const Tensor& x, std::size_t /*dim*/, const Tensor& /*values*/, const Tensor& /*indices*/) {
    missing("max", x);
  }
  /// out is zeroed and row-major; grad and indices have its sizes with 1 at `dim`. An index out of range throws on
  /// the CPU; on a GPU its gradient goes nowhere, and the first element along `dim` becomes NaN (floating point).
  virtual void scatter_by_index(const Tensor& /*grad*/, const Tensor& /*indices*/, const Tensor& out,
                                std::size_t /*dim*/) {
    missing("scatter_by_index", out);
  }
  /// out: one float64 element.
  virtual void sum_of_squares(const Tensor& x, const Tensor& /*out*/) { missing("sum_of_squares", x); }
  /// out: one int64 element.
  virtual void count_nonfinite(const Tensor& x, const Tensor& /*out*/) { missing("count_nonfinite", x); }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("reduce", operation, where.device());
  }
};

ReduceBackend& cpu_reduce();
ReduceBackend& cuda_reduce();
inline ReduceBackend& reduce_backend(Device device) { return device.is_cuda() ? cuda_reduce() : cpu_reduce(); }

}  // namespace ddp::raw
