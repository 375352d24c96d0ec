#include "tensor/combine.h"

#include <algorithm>

#include "ddp_kernels/combine.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {
namespace {

static_assert(static_cast<int>(kernels::Combine::sum) == static_cast<int>(Combine::sum) &&
              static_cast<int>(kernels::Combine::product) == static_cast<int>(Combine::product) &&
              static_cast<int>(kernels::Combine::min) == static_cast<int>(Combine::min) &&
              static_cast<int>(kernels::Combine::max) == static_cast<int>(Combine::max));

constexpr std::size_t kMost = kernels::kMaxCombined;

void launch(const kernels::CombineTable& table, const Tensor& like, Combine op, int divisor) {
  launch_kernel("kernels::combine", like.device(), [&](cudaStream_t stream) {
    return kernels::combine(table, kernel_type(like), static_cast<kernels::Combine>(op), like.numel(), divisor, stream);
  });
}

}  // namespace

void combine(const std::vector<Tensor>& sources, const std::vector<Tensor>& outputs, Combine op, int divisor) {
  DDP_CHECK(!sources.empty() && !outputs.empty(), InvalidArgument, "combine: no sources or no outputs");
  const Tensor& like = sources.front();
  if (like.numel() == 0) return;
  for (const auto* side : {&sources, &outputs}) {
    for (const Tensor& tensor : *side) {
      DDP_CHECK(tensor.numel() == like.numel() && tensor.dtype() == like.dtype() && tensor.device() == like.device() &&
                    tensor.is_contiguous(),
                InvalidArgument, "combine: ", tensor.sizes(), " ", tensor.dtype(), " on ", tensor.device(), " beside ",
                like.sizes(), " ", like.dtype(), " on ", like.device());
    }
  }
  // With more sources than one launch takes, what has been combined so far is carried in memory of its own: an output
  // may be a source that is still to come, and 16-bit floats are rounded at the end only.
  const bool is_half = like.dtype() == DType::float16 || like.dtype() == DType::bfloat16;
  std::size_t taken = 0;
  Tensor carry;
  const auto take = [&](kernels::CombineTable& table, std::size_t count) {
    table.sources = static_cast<int>(count);
    for (std::size_t s = 0; s < count; ++s) table.source[s] = sources[taken + s].data();
    if (taken > 0) table.carried = carry.data();
    taken += count;
  };
  while (sources.size() - taken > kMost) {
    if (!carry.defined()) carry = empty({like.numel()}, {is_half ? DType::float32 : like.dtype(), like.device()});
    kernels::CombineTable table;
    take(table, kMost);
    table.carry = carry.data();
    launch(table, like, op, 1);
  }
  for (std::size_t at = 0; at < outputs.size(); at += kMost) {
    kernels::CombineTable table;
    if (at == 0) {
      take(table, sources.size() - taken);
    } else {
      table.sources = 1;  // the result itself, from the first output on
      table.source[0] = outputs.front().data();
    }
    const std::size_t count = std::min(kMost, outputs.size() - at);
    table.outputs = static_cast<int>(count);
    for (std::size_t o = 0; o < count; ++o) table.output[o] = outputs[at + o].data();
    launch(table, like, op, at == 0 ? divisor : 1);
  }
}

void divide_(const Tensor& x, int divisor) {
  if (x.numel() == 0 || divisor == 1) return;
  launch_kernel("kernels::divide", x.device(), [&](cudaStream_t stream) {
    return kernels::divide(x.data(), kernel_type(x), x.numel(), divisor, stream);
  });
}

}  // namespace ddp::raw
