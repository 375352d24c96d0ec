#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddp/tensor/tensor.h"

/// One call over many tensors through a table of chunks, so that an optimiser step costs one launch a
/// group and not one a parameter. All tensors of a table are contiguous and on one device.
namespace ddp::raw {

/// One parameter's memory; gradient and states have the parameter's dtype. `gradient` may be null: the chunk is then
/// skipped.
struct Chunk {
  void* parameter = nullptr;
  const void* gradient = nullptr;
  void* state0 = nullptr;  // momentum, or first moment
  void* state1 = nullptr;  // second moment
  std::int64_t numel = 0;
  std::int64_t step = 1;  // number of this update of this parameter, from 1
  DType dtype = DType::float32;
  /// In memory of the device, or null. The chunk is left as it is when the word is not 0 at the time of the update
  /// (see Storage::refusal).
  const std::uint32_t* refusal = nullptr;
  /// In memory of the device, or null. Raised by 1 by each update that was refused, unless the chunk is empty.
  std::uint32_t* refused = nullptr;
};

struct SgdParams {
  double lr = 0.01;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
/// PyTorch's SGD: g += wd*p; v = first step ? g : momentum*v + (1-dampening)*g; p -= lr*(nesterov ? g+momentum*v : v).
void sgd_step(std::span<const Chunk> chunks, const SgdParams& params, Device device);

struct AdamParams {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // AdamW
};
void adam_step(std::span<const Chunk> chunks, const AdamParams& params, Device device);

/// Square root of the sum of squares over all tensors, a float64 tensor without dimensions on their device.
Tensor total_norm(const std::vector<Tensor>& tensors);
/// Multiplies all by one factor.
void scale_all_(const std::vector<Tensor>& tensors, double factor);
/// Multiplies all by max_norm / (norm + 1e-6) where that is not 1 or more (so by NaN, too). `norm`: one float64
/// element on their device; read there, so that the host does not wait.
void clip_all_(const std::vector<Tensor>& tensors, const Tensor& norm, double max_norm);

}  // namespace ddp::raw
