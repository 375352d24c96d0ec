#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "ddp/comm/process_group.h"

/// Numbers that must be equal on all ranks.
namespace ddp::parallel {

/// For `data::DistributedSamplerOptions::agree`: a function that takes this rank's seed and returns it when it
/// is the same on all ranks, else throws InvalidArgument on all of them, naming two ranks and both seeds.
/// Calling it is collective over the group and blocks the host.
std::function<std::uint64_t(std::uint64_t)> agree_seed(std::shared_ptr<comm::ProcessGroup> group);

}  // namespace ddp::parallel
