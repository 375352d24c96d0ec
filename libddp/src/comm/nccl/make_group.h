#pragma once

#include <memory>

#include "ddp/comm/process_group.h"

/// The way to the NCCL backend; no_nccl.cpp takes its place in a build without NCCL.
namespace ddp::comm {

struct NcclConfig {
  int rank = 0;
  int size = 1;
  Device device = Device::cuda();
  std::shared_ptr<Store> store;  ///< of this group alone
  std::chrono::milliseconds timeout = kDefaultTimeout;
  bool serves_store = false;  ///< this process ends the store when it ends
  bool check_collectives = false;
};

bool nccl_is_built();
/// Connects all ranks. Blocks the host.
std::shared_ptr<ProcessGroup> make_nccl_group(const NcclConfig& config, std::source_location where);

}  // namespace ddp::comm
