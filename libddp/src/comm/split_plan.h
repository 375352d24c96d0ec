#pragma once

#include <source_location>
#include <vector>

#include "ddp/comm/process_group.h"

namespace ddp::comm {

/// Who is in this rank's part of a split: ranks of the parent group, in the order of the new ranks.
struct SplitPlan {
  std::vector<int> members;
  int rank = -1;  ///< this rank's place in members; -1 with a negative colour
};

/// Collective over the parent: exchanges colours and keys. Blocks the host.
SplitPlan plan_split(ProcessGroup& parent, int color, int key, std::source_location where);

}  // namespace ddp::comm
