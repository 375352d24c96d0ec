#include "tensor/foreach.h"

#include <string_view>

#include "tensor/backend/foreach_backend.h"
#include "tensor/checks.h"

namespace ddp::raw {

namespace {

void check_chunks(std::string_view operation, std::span<const Chunk> chunks, bool needs_state0, bool needs_state1) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    DDP_CHECK(is_floating_point(chunk.dtype), InvalidArgument, operation, ": chunk ", i, " has dtype ", chunk.dtype,
              "; allowed: float32, float64, float16, bfloat16");
    DDP_CHECK(chunk.numel >= 0, InvalidArgument, operation, ": chunk ", i, " has ", chunk.numel, " elements");
    DDP_CHECK(chunk.step >= 1, InvalidArgument, operation, ": chunk ", i, " is at step ", chunk.step,
              "; allowed: 1 or more");
    if (chunk.gradient == nullptr || chunk.numel == 0) continue;
    DDP_CHECK(chunk.parameter != nullptr, InvalidArgument, operation, ": chunk ", i, " has no parameter memory");
    DDP_CHECK((chunk.state0 != nullptr || !needs_state0) && (chunk.state1 != nullptr || !needs_state1), InvalidArgument,
              operation, ": chunk ", i, " has no state memory");
  }
}

// All defined, contiguous, floating point and on one device, which is returned.
Device check_tensors(std::string_view operation, const std::vector<Tensor>& tensors) {
  Device device;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_floating(operation, tensors[i]);
    if (i == 0) device = tensors[0].device();
    check_same_device(operation, tensors[0], tensors[i]);
    DDP_CHECK(tensors[i].is_contiguous(), InvalidArgument, operation, ": tensor ", i, " (sizes ", tensors[i].sizes(),
              ", strides ", tensors[i].strides(), ") is not row-major");
  }
  return device;
}

}  // namespace

void sgd_step(std::span<const Chunk> chunks, const SgdParams& params, Device device) {
  check_chunks("sgd_step", chunks, params.momentum != 0, false);
  DDP_CHECK(!params.nesterov || (params.momentum > 0 && params.dampening == 0), InvalidArgument,
            "sgd_step: nesterov with momentum ", params.momentum, " and dampening ", params.dampening,
            "; allowed: momentum above 0 and dampening 0");
  if (!chunks.empty()) foreach_backend(device).sgd_step(chunks, params, device);
}

void adam_step(std::span<const Chunk> chunks, const AdamParams& params, Device device) {
  check_chunks("adam_step", chunks, true, true);
  if (!chunks.empty()) foreach_backend(device).adam_step(chunks, params, device);
}

Tensor total_norm(const std::vector<Tensor>& tensors) {
  const Device device = check_tensors("total_norm", tensors);
  const TensorOptions options{DType::float64, device};
  if (tensors.empty()) return zeros({}, options);
  Tensor out = empty({}, options);
  foreach_backend(device).total_norm(tensors, out);
  return out;
}

void scale_all_(const std::vector<Tensor>& tensors, double factor) {
  const Device device = check_tensors("scale_all_", tensors);
  if (!tensors.empty()) foreach_backend(device).scale_all(tensors, factor, device);
}

void clip_all_(const std::vector<Tensor>& tensors, const Tensor& norm, double max_norm) {
  const Device device = check_tensors("clip_all_", tensors);
  check_defined("clip_all_", "norm", norm);
  DDP_CHECK(norm.dtype() == DType::float64 && norm.numel() == 1, InvalidArgument, "clip_all_: norm is ", norm.dtype(),
            " ", norm.sizes(), "; expected one float64 element");
  if (tensors.empty()) return;
  check_same_device("clip_all_", tensors[0], norm);
  foreach_backend(device).clip_all(tensors, norm, max_norm);
}

}  // namespace ddp::raw
