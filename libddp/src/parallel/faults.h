#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp/comm/process_group.h"
#include "parallel/status_word.h"

/// What went wrong in a pass, and how all ranks come to know it.
namespace ddp::parallel {

/// One rank's account. Sent only when the status word shows a fault.
struct PassAccount {
  std::uint64_t pass = 0;
  std::uint64_t latest = 0;  // the last pass whose buckets this rank has launched
  std::uint64_t plan_hash = 0;
  std::vector<std::string> missing;     // got no gradient
  std::vector<std::string> twice;       // became ready more than once
  std::vector<std::string> unexpected;  // got a gradient though inactive (frozen)
  std::vector<std::string> inactive;    // frozen when the pass began
};

comm::Bytes encode(const PassAccount& account);
/// Throws CommError when the bytes end too early.
PassAccount decode_account(const comm::Bytes& bytes);

/// The error's text from all accounts, by rank.
std::string describe(const std::vector<PassAccount>& accounts);

/// Collective among the ranks whose status word shows a fault or a difference: that is all of them. Returns
/// the error's text, equal on all ranks. Blocks the host.
std::string exchange_accounts(comm::ProcessGroup& group, const PassAccount& mine,
                              const comm::CollectiveOptions& options, std::source_location where);

/// The text when a rank gave the pass up: nothing can be exchanged with it any more.
std::string describe_abandoned(const StatusSum& status);

}  // namespace ddp::parallel
