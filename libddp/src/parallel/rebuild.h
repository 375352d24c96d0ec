#pragma once

#include <cstddef>
#include <source_location>
#include <vector>

#include "ddp/comm/process_group.h"

namespace ddp::parallel {

/// Remembers in which order gradients arrived in the first healthy synchronised pass, and lets the ranks
/// agree on one order.
class ArrivalOrder {
 public:
  explicit ArrivalOrder(bool wanted) : wanted_(wanted) {}

  void begin_pass() { order_.clear(); }
  void arrived(std::size_t slot) {
    if (wanted_) order_.push_back(slot);
  }
  /// The pass that ended was healthy on all ranks: its order counts.
  void keep() { pending_ = wanted_; }
  bool wanted() const { return wanted_; }
  /// An order waits to be agreed on. Equal on all ranks, since health is.
  bool pending() const { return pending_; }
  /// Collective: rank 0's order of all `slots`; those that did not arrive come last. Only once. Blocks the host.
  std::vector<std::size_t> agree(comm::ProcessGroup& group, std::size_t slots, const comm::CollectiveOptions& options,
                                 std::source_location where);

 private:
  bool wanted_;
  bool pending_ = false;
  std::vector<std::size_t> order_;
};

}  // namespace ddp::parallel
