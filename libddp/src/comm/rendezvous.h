#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "comm/async_work.h"
#include "ddp/comm/store.h"

namespace ddp::comm {

struct Meeting {
  std::shared_ptr<Store> store;    ///< with a prefix of this generation's own
  std::vector<std::string> hosts;  ///< by rank
};

/// All ranks of a world meet in a store. Each tells who it is and how many ranks it expects; everybody then goes
/// on, or gets the same error: a rank that came twice, with host and process of both; world sizes that differ, with
/// both and their ranks. At the deadline the ranks that did not come are named.
///
/// A process that meets again in the same store starts the next generation, with keys of its own. A process that
/// comes late to a complete world is refused and disturbs nobody.
Meeting meet(const std::shared_ptr<Store>& store, int rank, int size, std::chrono::milliseconds timeout,
             Clock::time_point deadline, std::source_location where);

/// Name of this host.
std::string host_name();

}  // namespace ddp::comm
