#pragma once

#include <memory>

#include "ddp/comm/process_group.h"

/// The way to the NCCL backend; no_nccl.cpp takes its place in a build without NCCL.
namespace ddp::comm {

bool nccl_is_built();
/// Connects all ranks. Blocks the host.
std::shared_ptr<ProcessGroup> make_nccl_group(int rank, int size, Device device, std::shared_ptr<Store> store,
                                              std::chrono::milliseconds timeout, std::source_location where);

}  // namespace ddp::comm
