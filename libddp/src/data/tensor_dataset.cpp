#include <cstring>

#include "data/byte_file.h"
#include "ddp/core/error.h"
#include "ddp/data/dataset.h"
#include "tensor/copy.h"

namespace ddp::data {
namespace {

/// The rows of `from` (contiguous) with these numbers.
Tensor gather_rows(const Tensor& from, std::span<const std::int64_t> indices) {
  Dims sizes = from.sizes();
  sizes[0] = static_cast<std::int64_t>(indices.size());
  Tensor result = empty(sizes, from.options());
  const std::int64_t rows = from.size(0);
  const auto row_bytes = static_cast<std::size_t>(rows == 0 ? 0 : from.nbytes() / rows);
  if (row_bytes == 0) return result;
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* to = static_cast<std::byte*>(result.data());
  for (const std::int64_t index : indices) {
    std::memcpy(to, source + static_cast<std::size_t>(index) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return result;
}

}  // namespace

TensorDataset::TensorDataset(const Tensor& inputs, const Tensor& targets) {
  DDP_CHECK(inputs.defined() && targets.defined(), InvalidArgument,
            "TensorDataset: ", inputs.defined() ? "targets" : "inputs", " is an undefined tensor");
  DDP_CHECK(inputs.device().is_cpu() && targets.device().is_cpu(), InvalidArgument,
            "TensorDataset: tensors must be on the CPU; inputs are on ", inputs.device(), ", targets on ",
            targets.device());
  DDP_CHECK(inputs.dim() >= 1 && targets.dim() >= 1 && inputs.size(0) == targets.size(0), InvalidArgument,
            "TensorDataset: inputs ", inputs.sizes(), " and targets ", targets.sizes(),
            " must have the same first size, the number of examples");
  inputs_ = raw::contiguous(inputs.detach());
  targets_ = raw::contiguous(targets.detach());
}

std::int64_t TensorDataset::size() const { return inputs_.size(0); }

Batch TensorDataset::get_batch(std::span<const std::int64_t> indices) const {
  check_indices("TensorDataset", indices, size());
  return {gather_rows(inputs_, indices), gather_rows(targets_, indices)};
}

}  // namespace ddp::data
