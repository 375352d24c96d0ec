#include "parallel/side_channel.h"

#include <thread>

#include "parallel/support.h"

namespace {

using namespace ddp;
using namespace ddp::test;
using parallel::SideChannel;
using std::chrono::milliseconds;

comm::Bytes bytes(int a, int b) { return {static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)}; }

TEST(SideChannel, EveryRanksBytesInEachCallWhateverTheOthersHaveReached) {
  on_ranks(3, [](int rank, const auto& group) {
    group->ensure_lanes(2);
    SideChannel channel(group, 1);
    SideChannel other(group, 1);
    for (int call = 0; call < 20; ++call) {
      if (call % 3 == rank) std::this_thread::sleep_for(milliseconds(3));
      const auto all = channel.all_gather(bytes(rank, call), milliseconds(20'000), {});
      ASSERT_EQ(all.size(), 3U);
      for (int from = 0; from < 3; ++from) EXPECT_EQ(all[static_cast<std::size_t>(from)], bytes(from, call));
      if (call % 5 == 0) {
        EXPECT_EQ(other.all_gather(bytes(rank, 100 + call), milliseconds(20'000), {})[2], bytes(2, 100 + call));
      }
    }
  });
}

TEST(SideChannel, WhoDoesNotComeIsMissingAndTheCallGoesOnLater) {
  on_ranks(3, [](int rank, const auto& group) {
    if (SideChannel::needs_lane(*group)) return;  // a lane has no patience
    SideChannel channel(group, 1);
    if (rank == 2) {
      group->barrier();
      const auto all = channel.all_gather(bytes(2, 7), milliseconds(20'000), {});
      // What the others have said stands there.
      EXPECT_EQ(all[0], bytes(0, 7));
      EXPECT_EQ(all[1], bytes(1, 7));
    } else {
      const auto some = channel.all_gather(bytes(rank, 7), milliseconds(1500), {});
      EXPECT_EQ(some[0], bytes(0, 7));
      EXPECT_EQ(some[1], bytes(1, 7));
      EXPECT_FALSE(some[2].has_value());
      group->barrier();
      EXPECT_EQ(channel.all_gather(bytes(rank, 7), milliseconds(20'000), {})[2], bytes(2, 7));
    }
    EXPECT_EQ(channel.all_gather(bytes(rank, 8), milliseconds(20'000), {})[0], bytes(0, 8));
  });
}

}  // namespace
