#include "ddp/core/stream.h"

#include <gtest/gtest.h>

#include <utility>

#include "ddp/core/error.h"

namespace ddp {
namespace {

TEST(Stream, CpuStreamsAreMarkersAndEventsAreCompleteOnceRecorded) {
  Stream stream(Device::cpu(1));
  Event early(Device::cpu(1), true);
  EXPECT_TRUE(early.is_complete());
  early.record(stream);
  Event late(Device::cpu(1), true);
  late.record(stream);
  EXPECT_TRUE(late.is_complete());
  EXPECT_GE(late.milliseconds_since(early), 0.0);
  stream.view().wait(late);
  stream.view().wait_for(current_stream(Device::cpu(1)));
  stream.view().synchronize();
  Stream moved = std::move(stream);
  EXPECT_EQ(moved.device(), Device::cpu(1));
}

TEST(Stream, GuardRestores) {
  const StreamView before = current_stream(Device::cpu());
  {
    Stream stream(Device::cpu());
    const StreamGuard guard(stream);
  }
  EXPECT_EQ(current_stream(Device::cpu()), before);
}

TEST(Event, WrongDeviceIsRefused) {
  Event event(Device::cpu(1));
  EXPECT_THROW(event.record(StreamView(Device::cpu(2))), InvalidArgument);
  Event never(Device::cpu(1));
  EXPECT_THROW(static_cast<void>(event.milliseconds_since(never)), InvalidArgument);
}

TEST(Stream, NoSuchDevice) {
  EXPECT_THROW(Stream(Device::cpu(kMaxCpuDevices)), InvalidArgument);
  EXPECT_THROW(Event(Device::cuda(kMaxCpuDevices - 1)), InvalidArgument);
}

}  // namespace
}  // namespace ddp
