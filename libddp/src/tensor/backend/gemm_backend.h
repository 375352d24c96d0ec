#pragma once

#include "tensor/backend/backend.h"
#include "tensor/gemm.h"

namespace ddp::raw {

/// All tensors of a call are on one device and of one floating-point dtype; `out` overlaps no input.
class GemmBackend {
 public:
  virtual ~GemmBackend() = default;
  /// a [.., m, k], b [.., k, n], out [.., m, n]; leading sizes equal (stride 0 where broadcast), any strides.
  virtual void matmul(const Tensor& /*a*/, const Tensor& /*b*/, const Tensor& out, bool /*accumulate*/) {
    missing("matmul", out);
  }
  /// x [n, in], weight [out, in], bias contiguous [out] or undefined, out [n, out].
  virtual void linear(const Tensor& /*x*/, const Tensor& /*weight*/, const Tensor& /*bias*/, bool /*relu*/,
                      const Tensor& out) {
    missing("linear", out);
  }
  /// `out` [out, in] = or += grad^T x and `bias` [out] = sums of grad over its rows, of grad [n, out] and x [n, in]
  /// with n > 0; `bias` is contiguous. False, with nothing done, where that is no single launch.
  virtual bool linear_parameter_grads(const Tensor& /*grad*/, const Tensor& /*x*/, const Tensor& /*out*/,
                                      bool /*accumulate*/, const Tensor& /*bias*/) {
    return false;
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("gemm", operation, where.device());
  }
};

GemmBackend& cpu_gemm();
GemmBackend& cuda_gemm();
inline GemmBackend& gemm_backend(Device device) { return device.is_cuda() ? cuda_gemm() : cpu_gemm(); }

}  // namespace ddp::raw
