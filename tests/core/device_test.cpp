#include "ddp/core/device.h"

#include <gtest/gtest.h>

#include "ddp/core/error.h"

namespace ddp {
namespace {

TEST(Device, ParsesWhatItPrints) {
  EXPECT_EQ(Device::parse("cpu"), Device::cpu(0));
  EXPECT_EQ(Device::parse("cpu:3"), Device::cpu(3));
  EXPECT_EQ(Device::parse("cuda:1"), Device::cuda(1));
  EXPECT_EQ(to_string(Device::parse("cuda")), "cuda:0");
}

TEST(Device, RefusesOtherTextsAndQuotesThem) {
  for (const char* text : {"", "gpu", "cpu:", "cpu:-1", "cpu:x", "cuda:64", "cpu 1"}) {
    try {
      Device::parse(text);
      FAIL() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

TEST(Device, CpuDevicesAreSeveral) {
  EXPECT_EQ(device_count(DeviceType::cpu), kMaxCpuDevices);
  EXPECT_GE(device_count(DeviceType::cuda), 0);
  EXPECT_THROW(memory_stats(Device::cpu(kMaxCpuDevices)), InvalidArgument);
}

TEST(Device, ThreadsAreSetPerDevice) {
  set_num_threads(3, Device::cpu(5));
  set_num_threads(2, Device::cpu(6));
  EXPECT_EQ(num_threads(Device::cpu(5)), 3);
  EXPECT_EQ(num_threads(Device::cpu(6)), 2);
  EXPECT_THROW(set_num_threads(0), InvalidArgument);
}

}  // namespace
}  // namespace ddp
