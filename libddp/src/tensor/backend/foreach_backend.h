#pragma once

#include "tensor/backend/backend.h"
#include "tensor/foreach.h"

namespace ddp::raw {

/// Chunks without a gradient or without elements have been checked but not removed; dtypes are floating point.
class ForeachBackend {
 public:
  virtual ~ForeachBackend() = default;
  virtual void sgd_step(std::span<const Chunk> /*chunks*/, const SgdParams& /*params*/, Device device) {
    missing("sgd_step", device);
  }
  virtual void adam_step(std::span<const Chunk> /*chunks*/, const AdamParams& /*params*/, Device device) {
    missing("adam_step", device);
  }
  /// out: one float64 element.
  virtual void total_norm(std::span<const Tensor> /*tensors*/, const Tensor& out) {
    missing("total_norm", out.device());
  }
  virtual void scale_all(std::span<const Tensor> /*tensors*/, double /*factor*/, Device device) {
    missing("scale_all_", device);
  }
  /// `norm`: one float64 element on the same device, which the host does not read where it would have to wait.
  virtual void clip_all(std::span<const Tensor> /*tensors*/, const Tensor& norm, double /*max_norm*/) {
    missing("clip_all_", norm.device());
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, Device device) {
    not_available("foreach", operation, device);
  }
};

ForeachBackend& cpu_foreach();
ForeachBackend& cuda_foreach();
inline ForeachBackend& foreach_backend(Device device) { return device.is_cuda() ? cuda_foreach() : cpu_foreach(); }

}  // namespace ddp::raw
