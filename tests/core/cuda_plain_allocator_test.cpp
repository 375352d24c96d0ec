// DDP_CUDA_ALLOCATOR=plain, as the test's environment sets it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "core/allocator.h"
#include "core/device_runtime.h"
#include "ddp/core/error.h"
#include "ddp/core/stream.h"
#include "support/expect_error.h"

namespace {

using ddp::Device;
using ddp::MemoryStats;
using ddp::Stream;
using ddp::StreamView;

constexpr Device kGpu = Device::cuda(0);

class PlainAllocator : public testing::Test {
 protected:
  void SetUp() override {
    const char* mode = std::getenv("DDP_CUDA_ALLOCATOR");
    if (mode == nullptr || std::string(mode) != "plain") GTEST_SKIP() << "needs DDP_CUDA_ALLOCATOR=plain";
  }
};

TEST_F(PlainAllocator, EveryBlockIsTheSystemsAndExact) {
  const Stream stream(kGpu);
  const MemoryStats before = ddp::memory_stats(kGpu);
  void* block = ddp::core::allocate(1001, stream);
  MemoryStats during = ddp::memory_stats(kGpu);
  EXPECT_EQ(during.in_use, before.in_use + 1001);
  EXPECT_EQ(during.reserved, before.reserved + 1001);
  EXPECT_EQ(during.allocations, before.allocations + 1);
  EXPECT_EQ(during.system_allocations, before.system_allocations + 1);
  ddp::core::deallocate(block, 1001, stream);
  EXPECT_EQ(ddp::memory_stats(kGpu).in_use, before.in_use);
  EXPECT_EQ(ddp::memory_stats(kGpu).reserved, before.reserved);
  block = ddp::core::allocate(1001, stream);
  EXPECT_EQ(ddp::memory_stats(kGpu).system_allocations, before.system_allocations + 2);
  ddp::core::deallocate(block, 1001, stream);
}

TEST_F(PlainAllocator, ABlockIsFreedAfterTheWorkOfItsStreams) {
  const Stream own(kGpu);
  const Stream user(kGpu);
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  auto& runtime = ddp::core::device_runtime(ddp::DeviceType::cuda);
  void* block = ddp::core::allocate(kBytes, own);
  void* result = ddp::core::allocate(kBytes, user);
  const std::vector<unsigned char> sevens(kBytes, 7);
  runtime.copy(block, kGpu, sevens.data(), Device::cpu(), kBytes, own);
  user.view().wait_for(own);
  for (int i = 0; i < 20; ++i) runtime.copy(result, kGpu, block, kGpu, kBytes, user);
  const StreamView users[] = {user.view()};
  ddp::core::deallocate(block, kBytes, own, users);
  std::vector<unsigned char> received(kBytes, 0);
  runtime.copy(received.data(), Device::cpu(), result, kGpu, kBytes, user);
  EXPECT_EQ(received, sevens);
  ddp::core::deallocate(result, kBytes, user);
}

TEST_F(PlainAllocator, InAGroupFreesArePostponedAndRequestsRefused) {
  const Stream stream(kGpu);
  void* block = ddp::core::allocate(100, stream);
  const ddp::core::NoDeviceAllocation scope("a group");
  ddp::test::expect_error<ddp::InvalidArgument>([&] { ddp::core::allocate(100, stream); },
                                                {"100 bytes of cuda:0", "'a group'"});
  ddp::core::deallocate(block, 100, stream);
  // Still there: a freed address would be an error here.
  EXPECT_EQ(ddp::core::device_runtime(ddp::DeviceType::cuda).describe(block).kind, ddp::core::PointerKind::device);
}

}  // namespace
