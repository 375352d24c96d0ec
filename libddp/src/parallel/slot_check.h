#pragma once

#include <string>
#include <vector>

#include "ddp/parallel/reducer.h"
#include "parallel/start_check.h"

namespace ddp::parallel {

/// "1, 2, 3".
std::string numbers(const std::vector<std::int64_t>& values);
/// Why these slots and options cannot be; empty when they can.
std::string refusal(const comm::ProcessGroup& group, const std::vector<GradientSlot>& slots,
                    const ReducerOptions& options);
/// What must be equal on all ranks, for check_same_on_all_ranks.
Description describe_slots(const comm::ProcessGroup& group, const std::vector<GradientSlot>& slots,
                           const ReducerOptions& options);

}  // namespace ddp::parallel
