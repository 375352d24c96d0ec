#include "parallel/model_sync.h"

#include <utility>

#include "parallel/bucket_set.h"
#include "tensor/tensor_impl.h"

namespace ddp::parallel {
namespace {

struct Piece {
  std::vector<Tensor> sent;                     // contiguous
  std::vector<std::pair<Tensor, Tensor>> back;  // (tensor, its contiguous copy) where strides have gaps
  std::int64_t bytes = 0;
};

void add(Piece& piece, const Tensor& tensor) {
  piece.bytes += tensor.nbytes();
  if (layout_strides(tensor.sizes(), tensor.strides()) == tensor.strides()) {
    // Dense: the elements in the order in which they lie are equal on all ranks if the strides are.
    piece.sent.push_back(make_view(tensor, {tensor.numel()}, {1}, tensor.storage_offset()));
    return;
  }
  Tensor copy = empty(tensor.sizes(), tensor.options());
  copy.copy_(tensor);
  piece.sent.push_back(copy);
  piece.back.emplace_back(tensor, copy);
}

void send(comm::ProcessGroup& group, Piece& piece, const std::string& label, std::source_location where) {
  if (piece.sent.empty()) return;
  group.broadcast_coalesced(piece.sent, 0, {.label = label}, where).wait(where);
  for (const auto& [tensor, copy] : piece.back)
    make_view(tensor, tensor.sizes(), tensor.strides(), tensor.storage_offset()).copy_(copy);
  piece = {};
}

}  // namespace

void broadcast_from_rank_0(comm::ProcessGroup& group, const std::vector<Tensor>& tensors, const std::string& label,
                           std::int64_t piece_bytes, std::source_location where) {
  std::vector<DType> dtypes;
  for (const Tensor& tensor : tensors) {
    bool known = false;
    for (const DType dtype : dtypes) known = known || dtype == tensor.dtype();
    if (!known) dtypes.push_back(tensor.dtype());
  }
  for (const DType dtype : dtypes) {
    Piece piece;
    for (const Tensor& tensor : tensors) {
      if (tensor.dtype() != dtype || tensor.numel() == 0) continue;
      add(piece, tensor);
      if (piece_bytes > 0 && piece.bytes >= piece_bytes) send(group, piece, label, where);
    }
    send(group, piece, label, where);
  }
}

}  // namespace ddp::parallel
