#include <algorithm>
#include <cmath>
#include <limits>

#include "ddp_kernels/foreach.h"
#include "tensor/backend/foreach_backend.h"
#include "tensor/cuda/kernel_call.h"
#include "tensor/cuda/scratch.h"

namespace ddp::raw {
namespace {

/// The factors that Adam's bias corrections give. Chunks are nearly always at one step, so it keeps the last one's.
class BiasCorrections {
 public:
  explicit BiasCorrections(const AdamParams& params) : params_(params) {}
  void put(std::int64_t step, kernels::UpdateChunk& chunk) {
    if (step != step_) {
      const auto t = static_cast<double>(step);
      rate_ = -params_.lr / (1 - std::pow(params_.beta1, t));
      root_ = 1 / std::sqrt(1 - std::pow(params_.beta2, t));
      step_ = step;
    }
    chunk.rate = rate_;
    chunk.root = root_;
  }

 private:
  const AdamParams& params_;
  std::int64_t step_ = std::numeric_limits<std::int64_t>::min();
  double rate_ = 0;
  double root_ = 0;
};

/// Fills one table after the other and calls launch(table) with each: one launch where they all fit.
/// put(item, chunk) says whether the item is one for the kernel.
template <class Table, class Item, class Put, class Launch>
void for_tables(std::span<const Item> items, int capacity, const Put& put, const Launch& launch) {
  Table table;
  for (const Item& item : items) {
    if (!put(item, table.chunks[table.count])) continue;
    ++table.count;
    if (table.count < capacity) continue;
    kernels::plan(table);
    launch(table);
    table.count = 0;
  }
  if (table.count == 0) return;
  kernels::plan(table);
  launch(table);
}

bool put_update(const Chunk& chunk, bool state0, bool state1, kernels::UpdateChunk& to) {
  if (chunk.gradient == nullptr || chunk.numel == 0) return false;
  to.parameter = chunk.parameter;
  to.gradient = chunk.gradient;
  to.state0 = state0 ? chunk.state0 : nullptr;
  to.state1 = state1 ? chunk.state1 : nullptr;
  to.refusal = chunk.refusal;
  to.refused = chunk.refused;
  to.numel = chunk.numel;
  to.rate = 0;
  to.root = 0;
  to.type = static_cast<kernels::Type>(chunk.dtype);
  to.first = chunk.step == 1;
  return true;
}

bool put_array(const Tensor& tensor, kernels::ArrayChunk& to) {
  if (tensor.numel() == 0) return false;
  to.data = tensor.data();
  to.numel = tensor.numel();
  to.type = kernel_type(tensor);
  return true;
}

template <class Launch>
void for_arrays(std::span<const Tensor> tensors, const Launch& launch) {
  for_tables<kernels::ArrayTable>(tensors, kernels::array_capacity(), put_array, launch);
}

class CudaForeach final : public ForeachBackend {
 public:
  void sgd_step(std::span<const Chunk> chunks, const SgdParams& params, Device device) override {
    const kernels::SgdScalars scalars{.lr = params.lr,
                                      .momentum = params.momentum,
                                      .dampening = params.dampening,
                                      .weight_decay = params.weight_decay,
                                      .nesterov = params.nesterov};
    const bool momentum = params.momentum != 0;
    for_tables<kernels::UpdateTable>(
        chunks, kernels::update_capacity(),
        [&](const Chunk& chunk, kernels::UpdateChunk& to) { return put_update(chunk, momentum, false, to); },
        [&](const kernels::UpdateTable& table) {
          launch_kernel("kernels::sgd", device,
                        [&](cudaStream_t stream) { return kernels::sgd(table, scalars, stream); });
        });
  }

  void adam_step(std::span<const Chunk> chunks, const AdamParams& params, Device device) override {
    const kernels::AdamScalars scalars{.beta1 = params.beta1,
                                       .beta2 = params.beta2,
                                       .eps = params.eps,
                                       .decay = params.decoupled ? 0 : params.weight_decay,
                                       .shrink = params.decoupled ? 1 - params.lr * params.weight_decay : 1};
    BiasCorrections corrections(params);
    for_tables<kernels::UpdateTable>(
        chunks, kernels::update_capacity(),
        [&](const Chunk& chunk, kernels::UpdateChunk& to) {
          if (!put_update(chunk, true, true, to)) return false;
          corrections.put(chunk.step, to);
          return true;
        },
        [&](const kernels::UpdateTable& table) {
          launch_kernel("kernels::adam", device,
                        [&](cudaStream_t stream) { return kernels::adam(table, scalars, stream); });
        });
  }

  void total_norm(std::span<const Tensor> tensors, const Tensor& out) override {
    const Device device = out.device();
    // A place for the sum of every block: pieces are at least this large, but for the last one of a tensor.
    constexpr std::int64_t kLeastPiece = kernels::kForeachTile;
    std::int64_t most = 0;
    for (const Tensor& tensor : tensors) most += (tensor.numel() + kLeastPiece - 1) / kLeastPiece;
    const cuda::Scratch<double> partials(most, device);
    std::int64_t count = 0;
    for_arrays(tensors, [&](const kernels::ArrayTable& table) {
      launch_kernel("kernels::squares", device,
                    [&](cudaStream_t stream) { return kernels::squares(table, partials.data() + count, stream); });
      count += table.blocks;
    });
    launch_kernel("kernels::norm_of_partials", device, [&](cudaStream_t stream) {
      return kernels::norm_of_partials(partials.data(), count, out.data_ptr<double>(), stream);
    });
  }

  void scale_all(std::span<const Tensor> tensors, double factor, Device device) override {
    for_arrays(tensors, [&](const kernels::ArrayTable& table) {
      launch_kernel("kernels::scale", device,
                    [&](cudaStream_t stream) { return kernels::scale(table, factor, stream); });
    });
  }

  void clip_all(std::span<const Tensor> tensors, const Tensor& norm, double max_norm) override {
    for_arrays(tensors, [&](const kernels::ArrayTable& table) {
      launch_kernel("kernels::scale_to_norm", norm.device(), [&](cudaStream_t stream) {
        return kernels::scale_to_norm(table, norm.data_ptr<double>(), max_norm, stream);
      });
    });
  }
};

}  // namespace

ForeachBackend& cuda_foreach() {
  static CudaForeach backend;
  return backend;
}

}  // namespace ddp::raw
