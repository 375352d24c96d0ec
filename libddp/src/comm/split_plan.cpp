#include "comm/split_plan.h"

#include <algorithm>
#include <utility>

namespace ddp::comm {

SplitPlan plan_split(ProcessGroup& parent, int color, int key, std::source_location where) {
  const TensorOptions options{.dtype = DType::int32, .device = parent.device()};
  const Tensor mine = tensor<std::int32_t>({color, key}, parent.device());
  const Tensor all = empty({parent.size(), 2}, options);
  parent.all_gather(all, mine, {.label = "split"}, where).wait_blocking(where);
  const auto pairs = all.to_vector<std::int32_t>(where);
  const auto color_of = [&](int rank) { return pairs[static_cast<std::size_t>(rank) * 2]; };
  const auto key_of = [&](int rank) { return pairs[static_cast<std::size_t>(rank) * 2 + 1]; };

  SplitPlan plan;
  if (color < 0) return plan;
  for (int rank = 0; rank < parent.size(); ++rank) {
    if (color_of(rank) == color) plan.members.push_back(rank);
  }
  std::ranges::sort(plan.members, {}, [&](int rank) { return std::pair(key_of(rank), rank); });
  plan.rank = static_cast<int>(std::ranges::find(plan.members, parent.rank()) - plan.members.begin());
  return plan;
}

}  // namespace ddp::comm
