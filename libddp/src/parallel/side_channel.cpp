#include "parallel/side_channel.h"

#include <algorithm>
#include <chrono>

#include "core/observer.h"
#include "ddp/core/error.h"

namespace ddp::parallel {
namespace {

constexpr std::chrono::milliseconds kLook{500};

}  // namespace

SideChannel::SideChannel(std::shared_ptr<comm::ProcessGroup> group, int lane)
    : group_(std::move(group)), store_(group_->store()), lane_(lane) {
  if (store_) id_ = store_->add(concat("reducer/channels/", group_->rank()), 1);
}

std::string SideChannel::key(std::uint64_t call, int rank) const {
  return concat("reducer/", id_, "/", call, "/", rank);
}

std::vector<comm::Bytes> SideChannel::all_gather(const comm::Bytes& mine, const comm::Work& sum,
                                                 std::source_location where) {
  using Clock = std::chrono::steady_clock;
  ++calls_;
  if (!store_) {
    return group_->all_gather_bytes(mine, {.label = "faults of a backward pass", .lane = lane_}, where);
  }
  const core::BlockingScope scope("exchange about a failed reduction", group_->device(), where);
  store_->set(key(calls_, group_->rank()), mine);
  // Every rank has read the call before this one, or it would not be here.
  if (calls_ > 1) store_->erase(key(calls_ - 1, group_->rank()));
  const auto deadline = Clock::now() + group_->timeout();
  std::vector<comm::Bytes> all;
  for (int rank = 0; rank < group_->size();) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    DDP_CHECK(left.count() > 0, TimeoutError, "a backward pass failed, and rank ", rank, " did not say within ",
              group_->timeout().count(), " ms what it knows of it; it may not have noticed: see Reducer::verify");
    try {
      all.push_back(store_->get(key(calls_, rank), std::min(left, kLook), where));
      ++rank;
    } catch (const TimeoutError&) {
      if (const std::exception_ptr error = sum.error()) std::rethrow_exception(error);
    }
  }
  return all;
}

}  // namespace ddp::parallel
