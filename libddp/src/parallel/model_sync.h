#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "ddp/comm/process_group.h"

namespace ddp::parallel {

/// Rank 0's numbers in all these tensors, in place, whatever their strides. One collective per dtype and
/// piece: a piece ends with the tensor that reaches `piece_bytes` (0: no pieces). Blocks the host.
void broadcast_from_rank_0(comm::ProcessGroup& group, const std::vector<Tensor>& tensors, const std::string& label,
                           std::int64_t piece_bytes, std::source_location where);

}  // namespace ddp::parallel
