#pragma once

#include "tensor/backend/backend.h"
#include "tensor/loss.h"

namespace ddp::raw {

/// `index` is row-major int64 with n elements, `weight` [v, d] of any strides; a floating-point dtype.
class EmbeddingBackend {
 public:
  virtual ~EmbeddingBackend() = default;
  /// out: row-major, n rows of d. Checks the indices where that needs no wait.
  virtual void embedding(const Tensor& /*weight*/, const Tensor& /*index*/, const Tensor& out) {
    missing("embedding", out);
  }
  /// grad: row-major, n rows of d; out [v, d], any strides, is overwritten or added to.
  virtual void embedding_grad(const Tensor& /*grad*/, const Tensor& /*index*/, const Tensor& out, bool /*accumulate*/) {
    missing("embedding_grad", out);
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("embedding", operation, where.device());
  }
};

EmbeddingBackend& cpu_embedding();
EmbeddingBackend& cuda_embedding();
inline EmbeddingBackend& embedding_backend(Device device) {
  return device.is_cuda() ? cuda_embedding() : cpu_embedding();
}

}  // namespace ddp::raw
