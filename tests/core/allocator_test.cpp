#include "core/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "core/size_class.h"
#include "core/system_memory.h"
#include "ddp/core/error.h"
#include "support/expect_error.h"

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

TEST(Allocator, EverySizeHasTheSmallestClassThatHoldsIt) {
  for (std::size_t index = 0; index < kSizeClasses; ++index) {
    const std::size_t bytes = class_bytes(index);
    ASSERT_EQ(size_class(bytes), index);
    ASSERT_EQ(bytes % 64, 0U) << bytes;
    if (index + 1 == kSizeClasses) break;
    ASSERT_EQ(size_class(bytes + 1), index + 1) << bytes;
    const std::size_t next = class_bytes(index + 1);
    ASSERT_LE(next - bytes, std::max<std::size_t>(64, bytes / (bytes < (1 << 20) ? 4 : 32))) << bytes;
  }
}

TEST(Allocator, CountsAreExactWhateverTheThreads) {
  const Device device = Device::cpu(10);
  const StreamView stream(device);
  constexpr int kThreads = 4;
  constexpr int kBlocks = 50;
  const MemoryStats before = memory_stats(device);
  // All threads hold all their blocks at one moment, which is the peak.
  std::atomic<int> holding{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::vector<void*> blocks;
      for (int i = 0; i < kBlocks; ++i) blocks.push_back(allocate(64U << (i % 4), stream));
      ++holding;
      while (holding < kThreads) std::this_thread::yield();
      for (int i = 0; i < kBlocks; ++i) deallocate(blocks[static_cast<std::size_t>(i)], 64U << (i % 4), stream);
      // Alone with what is cached: nothing more is asked of the system.
      for (int i = 0; i < 1000; ++i) deallocate(allocate(64, stream), 64, stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::int64_t bytes = 0;
  for (int i = 0; i < kBlocks; ++i) bytes += kThreads * (64 << (i % 4));
  const MemoryStats after = memory_stats(device);
  EXPECT_EQ(after.in_use, before.in_use);
  EXPECT_EQ(after.peak, before.in_use + bytes);
  EXPECT_EQ(after.reserved, before.reserved + bytes);
  EXPECT_EQ(after.system_allocations, before.system_allocations + kThreads * kBlocks);
  EXPECT_EQ(after.allocations, before.allocations + kThreads * (kBlocks + 1000));
  release_cached_memory(device);
  EXPECT_EQ(memory_stats(device).reserved, before.reserved);
}

TEST(Allocator, ABlockFreedByAnotherThreadIsHandedOutAgain) {
  const StreamView stream(Device::cpu(11));
  void* block = allocate(4096, stream);
  std::thread([&] { deallocate(block, 4096, stream); }).join();
  EXPECT_EQ(allocate(4096, stream), block);
  deallocate(block, 4096, stream);
}

TEST(Allocator, UsersOnTheCpuAreDoneAlready) {
  const StreamView stream(Device::cpu(12));
  const StreamView user(Device::cpu(13));
  void* block = allocate(100, stream);
  deallocate(block, 100, stream, {&user, 1});
  EXPECT_EQ(allocate(100, stream), block);
  deallocate(block, 100, stream);
}

TEST(Allocator, TheModeIsOneOfTwoWords) {
  EXPECT_EQ(parse_allocator_mode(std::nullopt), AllocatorMode::caching);
  EXPECT_EQ(parse_allocator_mode(""), AllocatorMode::caching);
  EXPECT_EQ(parse_allocator_mode("caching"), AllocatorMode::caching);
  EXPECT_EQ(parse_allocator_mode("plain"), AllocatorMode::plain);
  test::expect_error<InvalidArgument>([] { parse_allocator_mode("Plain"); },
                                      {"DDP_CUDA_ALLOCATOR is 'Plain'", "allowed: caching, plain"});
}

TEST(Allocator, BetweenTheLaunchesOfAGroupTheSystemIsNotAsked) {
  const StreamView stream(Device::cpu(14));
  {
    const NoDeviceAllocation outer("all_reduce of 2 devices");
    {
      const NoDeviceAllocation inner("inner group");
      test::expect_error<InvalidArgument>([] { system_allocate(Memory::device, Device::cuda(1), 1000); },
                                          {"1000 bytes of cuda:1", "'inner group'"});
    }
    test::expect_error<InvalidArgument>([] { system_allocate(Memory::pinned_host, Device::cpu(), 64); },
                                        {"64 bytes of pinned host memory", "'all_reduce of 2 devices'"});
    deallocate(allocate(100, stream), 100, stream);  // ordinary memory is no matter of the device
    // Other threads are not forbidden anything, only made to wait for a while.
    std::thread([] {
      try {
        system_allocate(Memory::device, Device::cuda(kMaxCpuDevices - 1), 64);
        ADD_FAILURE() << "there are no " << kMaxCpuDevices << " GPUs";
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(std::string(error.what()).find("group"), std::string::npos) << error.what();
      } catch (const Error&) {  // no such device
      }
    }).join();
  }
  try {
    system_allocate(Memory::device, Device::cuda(kMaxCpuDevices - 1), 64);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("group"), std::string::npos) << error.what();
  }
}

TEST(Allocator, PinnedMemoryNeedsAGpu) {
  if (can_pin()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THROW(allocate_pinned(64), NotAvailable);
  EXPECT_EQ(pinned_memory_stats().allocations, 0);
  release_cached_pinned_memory();
}

}  // namespace
}  // namespace ddp::core
