#include "core/allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "ddp/core/error.h"

namespace ddp::core {
namespace {

TEST(Allocator, BlocksAreAlignedCountedAndReused) {
  const StreamView stream(Device::cpu(7));
  const MemoryStats before = memory_stats(Device::cpu(7));
  void* first = allocate(1000, stream);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0U);
  const MemoryStats during = memory_stats(Device::cpu(7));
  EXPECT_GE(during.in_use - before.in_use, 1000);
  EXPECT_LE(during.in_use - before.in_use, 1250);
  EXPECT_EQ(during.system_allocations, before.system_allocations + 1);
  deallocate(first, 1000, stream);
  EXPECT_EQ(memory_stats(Device::cpu(7)).in_use, before.in_use);
  EXPECT_EQ(allocate(1000, stream), first);
  EXPECT_EQ(memory_stats(Device::cpu(7)).system_allocations, before.system_allocations + 1);
  deallocate(first, 1000, stream);
  release_cached_memory(Device::cpu(7));
  EXPECT_EQ(memory_stats(Device::cpu(7)).reserved, before.reserved);
}

TEST(Allocator, PeakStartsAgainWhenAsked) {
  const StreamView stream(Device::cpu(8));
  void* large = allocate(1 << 20, stream);
  deallocate(large, 1 << 20, stream);
  EXPECT_EQ(memory_stats(Device::cpu(8)).peak, 1 << 20);
  reset_peak_memory(Device::cpu(8));
  EXPECT_EQ(memory_stats(Device::cpu(8)).peak, 0);
}

TEST(Allocator, NothingForZeroBytes) {
  EXPECT_EQ(allocate(0, StreamView(Device::cpu())), nullptr);
  EXPECT_THROW(allocate(0, StreamView(Device::cpu(1000))), InvalidArgument);
  deallocate(nullptr, 0, StreamView(Device::cpu()));
}

TEST(Allocator, TooMuchIsAnErrorWithTheNumbers) {
  try {
    allocate(std::size_t{1} << 60, StreamView(Device::cpu()));
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos) << error.what();
  }
}

TEST(Allocator, ThreadsGetDisjointBlocks) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const StreamView stream(Device::cpu(9));
      for (int i = 0; i < 200; ++i) {
        const std::size_t bytes = 64U << (i % 6);
        void* block = allocate(bytes, stream);
        std::memset(block, t, bytes);
        for (std::size_t k = 0; k < bytes; ++k) ASSERT_EQ(static_cast<unsigned char*>(block)[k], t);
        deallocate(block, bytes, stream);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory_stats(Device::cpu(9)).in_use, 0);
}

}  // namespace
}  // namespace ddp::core
