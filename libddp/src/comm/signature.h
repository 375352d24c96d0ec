#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/comm/process_group.h"

/// What must be equal on all ranks of one collective.
namespace ddp::comm {

/// Elements per rank that the collective moves, one number a tensor: of the tensor for all_reduce and
/// broadcast, of a rank's row for the others.
std::vector<std::int64_t> unit_elements(const Collective& collective);
/// The dtype of its tensors; uint8 for a barrier.
DType dtype_of_collective(const Collective& collective);
bool is_reduction(CollectiveKind kind);
bool is_rooted(CollectiveKind kind);
bool is_point_to_point(CollectiveKind kind);

/// A collective without its tensors: what must be equal on all ranks, in a few words of memory.
struct Outline {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::uint8;
  int root = 0;
  std::size_t tensors = 0;
  std::array<std::int64_t, 8> elements{};  ///< of the first tensors
};
Outline outline(const Collective& collective);
std::string describe(const Outline& outline);
/// "all_reduce(sum) of 100 x float32", "broadcast(root 1) of [3, 4] x float32": equal text, equal collective.
std::string describe(const Collective& collective);
/// "all_reduce #4 on lane 0 (bucket 3: fc.weight)".
std::string title(const Collective& collective);
/// Of kind, operation, root, dtype and sizes. Equal on all ranks that call the same thing.
std::uint64_t signature_hash(const Collective& collective);

}  // namespace ddp::comm
