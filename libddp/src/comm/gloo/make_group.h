#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "ddp/comm/process_group.h"

/// The way to the Gloo backend; no_gloo.cpp takes its place in a build without Gloo.
namespace ddp::comm {

struct GlooConfig {
  int rank = 0;
  int size = 1;
  Device device = Device::cpu();
  std::shared_ptr<Store> store;  ///< of this group alone
  std::chrono::milliseconds timeout = kDefaultTimeout;
  std::string address = "127.0.0.1";  ///< of this host, which the peers can reach
  std::string interface = {};         ///< used instead of the address when given
  bool serves_store = false;          ///< this process ends the store when it ends
  bool check_collectives = false;
  bool shared_memory = true;  ///< sums of ranks on one host go through shared memory where all can
};

/// Connects all ranks. Blocks the host.
std::shared_ptr<ProcessGroup> make_gloo_group(const GlooConfig& config, std::source_location where);

}  // namespace ddp::comm
