#include "parallel/side_channel.h"

#include <algorithm>
#include <chrono>

#include "core/observer.h"
#include "ddp/core/error.h"

namespace ddp::parallel {
namespace {

// For what is in the store already, when there is no time left.
constexpr std::chrono::milliseconds kLeast{50};

}  // namespace

SideChannel::SideChannel(std::shared_ptr<comm::ProcessGroup> group, int lane)
    : group_(std::move(group)), store_(group_->store()), lane_(lane) {
  if (store_) id_ = store_->add(concat("reducer/channels/", group_->rank()), 1);
}

std::string SideChannel::key(std::uint64_t call, int rank) const {
  return concat("reducer/", id_, "/", call, "/", rank);
}

std::vector<std::optional<comm::Bytes>> SideChannel::all_gather(const comm::Bytes& mine,
                                                                std::chrono::milliseconds patience,
                                                                std::source_location where) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::optional<comm::Bytes>> all(static_cast<std::size_t>(group_->size()));
  if (!store_) {
    const auto given = group_->all_gather_bytes(
        mine, {.label = "faults of a backward pass", .timeout = patience, .lane = lane_}, where);
    std::copy(given.begin(), given.end(), all.begin());
    return all;
  }
  const core::BlockingScope scope("exchange about a failed reduction", group_->device(), where);
  const std::uint64_t call = calls_ + 1;
  store_->set(key(call, group_->rank()), mine);
  // Whoever is in the call before this one still reads what belongs to it, and has read what came before.
  if (call > 2) store_->erase(key(call - 2, group_->rank()));
  const auto deadline = Clock::now() + patience;
  bool complete = true;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    try {
      all[static_cast<std::size_t>(rank)] = store_->get(key(call, rank), std::max(left, kLeast), where);
    } catch (const TimeoutError&) {
      complete = false;
    }
  }
  if (complete) calls_ = call;
  return all;
}

}  // namespace ddp::parallel
