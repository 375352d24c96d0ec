// What CUDA calls do on a machine without a GPU: in a build with CUDA they meet a missing driver, in one
// without they meet no_cuda.cpp. Both must end in an error that says so.
#include <gtest/gtest.h>

#include "core/device_runtime.h"
#include "ddp/core/error.h"
#include "ddp/core/stream.h"

namespace {

using ddp::Device;

class NoGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (ddp::device_count(ddp::DeviceType::cuda) > 0) GTEST_SKIP() << "this machine has a GPU";
  }
};

TEST_F(NoGpu, CountingTwiceGivesNone) {
  EXPECT_EQ(ddp::device_count(ddp::DeviceType::cuda), 0);
  EXPECT_EQ(ddp::core::cuda_runtime().device_count(), 0);
}

TEST_F(NoGpu, ADeviceIsRefusedWithTheNumberThereAre) {
  try {
    ddp::core::check_device(Device::cuda(1));
    FAIL() << "cuda:1 was accepted";
  } catch (const ddp::InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "device cuda:1 cannot be used: there are 0 CUDA devices here");
  }
  EXPECT_THROW(ddp::synchronize(Device::cuda()), ddp::InvalidArgument);
}

TEST_F(NoGpu, TheRuntimeThrowsAndDoesNotCrash) {
  ddp::core::DeviceRuntime& runtime = ddp::core::cuda_runtime();
  EXPECT_THROW(runtime.create_stream(Device::cuda(), ddp::StreamPriority::normal), ddp::Error);
  EXPECT_THROW(runtime.create_event(Device::cuda(), true), ddp::Error);
  EXPECT_THROW(runtime.allocate(Device::cuda(), 64), ddp::Error);
  EXPECT_THROW(runtime.synchronize_device(Device::cuda()), ddp::Error);
}

TEST_F(NoGpu, StreamsAndEventsThrow) {
  EXPECT_THROW(ddp::Stream{Device::cuda()}, ddp::Error);
  EXPECT_THROW(ddp::Event{Device::cuda()}, ddp::Error);
}

}  // namespace
