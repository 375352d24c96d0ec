#pragma once

#include "tensor/backend/backend.h"
#include "tensor/conv.h"

namespace ddp::raw {

/// All tensors of a call are on one device, row-major, [N, C, H, W] or [N, C, P, Q], with at least one
/// element in `out`; values of one floating-point dtype.
class PoolBackend {
 public:
  virtual ~PoolBackend() = default;
  virtual void max_pool2d(const Tensor& /*x*/, const PoolParams& /*params*/, const Tensor& values,
                          const Tensor& /*indices*/) {
    missing("max_pool2d", values);
  }
  /// An index lies in its output's window.
  virtual void max_pool2d_grad(const Tensor& /*grad*/, const Tensor& /*indices*/, const PoolParams& /*params*/,
                               const Tensor& out) {
    missing("max_pool2d_grad", out);
  }
  virtual void avg_pool2d(const Tensor& /*x*/, const PoolParams& /*params*/, const Tensor& out) {
    missing("avg_pool2d", out);
  }
  virtual void avg_pool2d_grad(const Tensor& /*grad*/, const PoolParams& /*params*/, const Tensor& out) {
    missing("avg_pool2d_grad", out);
  }
  virtual void adaptive_avg_pool2d(const Tensor& /*x*/, const Tensor& out) { missing("adaptive_avg_pool2d", out); }
  virtual void adaptive_avg_pool2d_grad(const Tensor& /*grad*/, const Tensor& out) {
    missing("adaptive_avg_pool2d_grad", out);
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("pool", operation, where.device());
  }
};

PoolBackend& cpu_pool();
PoolBackend& cuda_pool();
inline PoolBackend& pool_backend(Device device) { return device.is_cuda() ? cuda_pool() : cpu_pool(); }

}  // namespace ddp::raw
