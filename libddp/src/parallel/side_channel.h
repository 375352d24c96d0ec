#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "ddp/comm/process_group.h"

namespace ddp::parallel {

/// How the ranks of a device group talk when a pass has gone wrong. Not through the lanes of the buckets: ranks notice
/// at different points of their programs, some have queued the buckets of the passes after it already and the others
/// never will. Over the group's store; over a lane of its own where there is none.
class SideChannel {
 public:
  /// Collective in order: the ranks' n-th channels of a group belong together. `lane` is used where there is no store.
  SideChannel(std::shared_ptr<comm::ProcessGroup> group, int lane);
  static bool needs_lane(const comm::ProcessGroup& group) { return group.store() == nullptr; }

  /// Every rank's bytes, by rank. Blocks the host until all have called, and no longer than `patience`: then those of
  /// the ranks that have not called are missing, and the next call goes on with this one. (A lane has no such patience;
  /// its group fails at its time-out.)
  std::vector<std::optional<comm::Bytes>> all_gather(const comm::Bytes& mine, std::chrono::milliseconds patience,
                                                     std::source_location where);

 private:
  std::string key(std::uint64_t call, int rank) const;

  const std::shared_ptr<comm::ProcessGroup> group_;
  const std::shared_ptr<comm::Store> store_;
  const int lane_;
  std::int64_t id_ = 0;
  std::uint64_t calls_ = 0;  // that are complete
};

}  // namespace ddp::parallel
