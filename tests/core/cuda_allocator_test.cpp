// Memory of GPUs and page-locked host memory: when a block may be handed out again, and what must not happen.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/allocator.h"
#include "core/device_runtime.h"
#include "core/observer.h"
#include "ddp/core/error.h"
#include "ddp/core/stream.h"
#include "ddp/trace/recorder.h"
#include "support/expect_error.h"

namespace {

using ddp::Device;
using ddp::Event;
using ddp::MemoryStats;
using ddp::Stream;
using ddp::StreamView;

constexpr Device kGpu = Device::cuda(0);
constexpr Device kHost = Device::cpu(0);
constexpr std::size_t kLong = std::size_t{256} << 20;

ddp::core::DeviceRuntime& runtime() { return ddp::core::device_runtime(ddp::DeviceType::cuda); }

std::int64_t blocking_calls() { return ddp::trace::total(ddp::trace::Counter::blocking_calls); }

/// Keeps a stream busy for some milliseconds at least: 80 GiB of traffic, on an H200 about 20 ms.
class Busy {
 public:
  explicit Busy(StreamView stream) : stream_(stream), memory_(ddp::core::allocate(2 * kLong, stream)) {
    for (int i = 0; i < 160; ++i) {
      runtime().copy(memory_, kGpu, static_cast<char*>(memory_) + kLong, kGpu, kLong, stream_);
    }
  }
  ~Busy() { ddp::core::deallocate(memory_, 2 * kLong, stream_); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  StreamView stream_;
  void* memory_;
};

class CudaAllocator : public testing::Test {
 protected:
  void TearDown() override {
    ddp::synchronize(kGpu);
    ddp::release_cached_memory(kGpu);
    ddp::release_cached_pinned_memory();
  }
};

TEST_F(CudaAllocator, EachStreamHasItsOwnBlocks) {
  const Stream first(kGpu);
  const Stream second(kGpu);
  void* block = ddp::core::allocate(1 << 12, first);
  ddp::core::deallocate(block, 1 << 12, first);
  void* other = ddp::core::allocate(1 << 12, second);
  EXPECT_NE(other, block) << "a block crossed streams without an order";
  void* again = ddp::core::allocate(1 << 12, first);
  EXPECT_EQ(again, block);
  ddp::core::deallocate(other, 1 << 12, second);
  ddp::core::deallocate(again, 1 << 12, first);
}

TEST_F(CudaAllocator, ABlockUsedElsewhereComesBackBehindItsUsers) {
  const Stream own(kGpu);
  const Stream user(kGpu);
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  void* result = ddp::core::allocate(kBytes, user);
  std::vector<unsigned char> received(kBytes, 0);
  {
    void* block = ddp::core::allocate(kBytes, own);
    const std::vector<unsigned char> sevens(kBytes, 7);
    runtime().copy(block, kGpu, sevens.data(), kHost, kBytes, own);
    user.view().wait_for(own);
    const Busy busy(user);
    runtime().copy(result, kGpu, block, kGpu, kBytes, user);  // reads the block, late
    const std::int64_t blocked = blocking_calls();
    const MemoryStats before = ddp::memory_stats(kGpu);
    const StreamView users[] = {user.view()};
    ddp::core::deallocate(block, kBytes, own, users);
    EXPECT_EQ(ddp::memory_stats(kGpu).in_use, before.in_use - static_cast<std::int64_t>(kBytes));
    void* again = ddp::core::allocate(kBytes, own);
    EXPECT_EQ(again, block);
    EXPECT_EQ(ddp::memory_stats(kGpu).system_allocations, before.system_allocations);
    runtime().fill_zero(again, kBytes, own);  // would be too early if the stream did not wait
    EXPECT_EQ(blocking_calls(), blocked);
    ddp::core::deallocate(again, kBytes, own);
  }
  runtime().copy(received.data(), kHost, result, kGpu, kBytes, user);
  std::size_t wrong = 0;
  for (const unsigned char value : received) wrong += value != 7 ? 1 : 0;
  EXPECT_EQ(wrong, 0U) << "of " << kBytes << " bytes were overwritten before their user had read them";
  ddp::core::deallocate(result, kBytes, user);
}

TEST_F(CudaAllocator, FreeBlocksAreTakenBeforeThoseStillInUse) {
  const Stream own(kGpu);
  const Stream user(kGpu);
  void* used = ddp::core::allocate(1000, own);
  void* free = ddp::core::allocate(1000, own);
  const StreamView users[] = {user.view()};
  ddp::core::deallocate(used, 1000, own, users);
  ddp::core::deallocate(free, 1000, own);
  EXPECT_EQ(ddp::core::allocate(1000, own), free);
  EXPECT_EQ(ddp::core::allocate(1000, own), used);
  ddp::core::deallocate(used, 1000, own);
  ddp::core::deallocate(free, 1000, own);
}

TEST_F(CudaAllocator, TheSteadyPathNeitherAsksTheSystemNorBlocks) {
  const Stream stream(kGpu);
  for (int i = 0; i < 10; ++i) ddp::core::deallocate(ddp::core::allocate(100 << i, stream), 100 << i, stream);
  const MemoryStats before = ddp::memory_stats(kGpu);
  const std::int64_t blocked = blocking_calls();
  for (int round = 0; round < 1000; ++round) {
    for (int i = 0; i < 10; ++i) ddp::core::deallocate(ddp::core::allocate(100 << i, stream), 100 << i, stream);
  }
  const MemoryStats after = ddp::memory_stats(kGpu);
  EXPECT_EQ(after.system_allocations, before.system_allocations);
  EXPECT_EQ(after.allocations, before.allocations + 10000);
  EXPECT_EQ(after.reserved, before.reserved);
  EXPECT_EQ(blocking_calls(), blocked);
}

TEST_F(CudaAllocator, BetweenTheLaunchesOfAGroupOnlyCachedBlocksComeAndGo) {
  const Stream stream(kGpu);
  ddp::core::deallocate(ddp::core::allocate(5000, stream), 5000, stream);
  ddp::core::deallocate_pinned(ddp::core::allocate_pinned(5000), 5000, {});
  const MemoryStats before = ddp::memory_stats(kGpu);
  const MemoryStats pinned = ddp::pinned_memory_stats();
  {
    const ddp::core::NoDeviceAllocation scope("a group");
    ddp::core::deallocate(ddp::core::allocate(5000, stream), 5000, stream);
    ddp::core::deallocate_pinned(ddp::core::allocate_pinned(5000), 5000, {});
    // 77 MiB round to the next size class, 78 MiB.
    ddp::test::expect_error<ddp::InvalidArgument>([&] { ddp::core::allocate(std::size_t{77} << 20, stream); },
                                                  {"81788928 bytes of cuda:0", "'a group'"});
    ddp::test::expect_error<ddp::InvalidArgument>([] { ddp::core::allocate_pinned(std::size_t{77} << 20); },
                                                  {"81788928 bytes of pinned host memory", "'a group'"});
    const std::int64_t blocked = blocking_calls();
    ddp::release_cached_memory(kGpu);  // what goes back waits for the end of the scope
    EXPECT_EQ(blocking_calls(), blocked + 1);
  }
  EXPECT_EQ(ddp::memory_stats(kGpu).system_allocations, before.system_allocations);
  EXPECT_EQ(ddp::pinned_memory_stats().system_allocations, pinned.system_allocations);
  EXPECT_EQ(ddp::memory_stats(kGpu).in_use, before.in_use);
  ddp::core::deallocate(ddp::core::allocate(5000, stream), 5000, stream);
  EXPECT_EQ(ddp::memory_stats(kGpu).system_allocations, before.system_allocations + 1) << "the block was returned";
}

TEST_F(CudaAllocator, PinnedBlocksAreReusedWhenTheirCopiesAreDone) {
  const Stream stream(kGpu);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* device = ddp::core::allocate(kBytes, stream);
  void* block = ddp::core::allocate_pinned(kBytes);
  std::memset(block, 9, kBytes);
  const StreamView users[] = {stream.view()};
  const MemoryStats before = ddp::pinned_memory_stats();
  const std::int64_t blocked = blocking_calls();
  void* meanwhile = nullptr;
  {
    const Busy busy(stream);
    EXPECT_TRUE(runtime().copy(device, kGpu, block, kHost, kBytes, stream));
    ddp::core::deallocate_pinned(block, kBytes, users);
    meanwhile = ddp::core::allocate_pinned(kBytes);
    EXPECT_NE(meanwhile, block) << "handed out while a copy still reads it";
    std::memset(meanwhile, 1, kBytes);
    EXPECT_EQ(blocking_calls(), blocked);
  }
  stream.view().synchronize();
  void* again = ddp::core::allocate_pinned(kBytes);
  EXPECT_EQ(again, block);
  const MemoryStats after = ddp::pinned_memory_stats();
  EXPECT_EQ(after.system_allocations, before.system_allocations + 1);
  EXPECT_EQ(after.allocations, before.allocations + 2);
  EXPECT_EQ(after.in_use, before.in_use + static_cast<std::int64_t>(kBytes));
  std::vector<unsigned char> received(kBytes, 0);
  EXPECT_FALSE(runtime().copy(received.data(), kHost, device, kGpu, kBytes, stream));
  EXPECT_EQ(received, std::vector<unsigned char>(kBytes, 9));
  ddp::core::deallocate_pinned(meanwhile, kBytes, {});
  ddp::core::deallocate_pinned(again, kBytes, {});
  ddp::core::deallocate(device, kBytes, stream);
}

TEST_F(CudaAllocator, AddressesAreKnown) {
  const Stream stream(kGpu);
  void* device = ddp::core::allocate(64, stream);
  void* pinned = ddp::core::allocate_pinned(64);
  int pageable = 0;
  EXPECT_EQ(runtime().describe(device).kind, ddp::core::PointerKind::device);
  EXPECT_EQ(runtime().describe(device).device, 0);
  EXPECT_EQ(runtime().describe(pinned).kind, ddp::core::PointerKind::pinned);
  EXPECT_EQ(runtime().describe(&pageable).kind, ddp::core::PointerKind::pageable);
  ddp::core::deallocate_pinned(pinned, 64, {});
  ddp::core::deallocate(device, 64, stream);
}

TEST_F(CudaAllocator, EventsAndIdleStreamsAreUsedAgain) {
  void* event = nullptr;
  void* timing = nullptr;
  {
    const Event first(kGpu);
    const Event second(kGpu, true);
    event = first.native();
    timing = second.native();
    EXPECT_NE(event, timing);
  }
  EXPECT_EQ(Event(kGpu).native(), event);
  EXPECT_EQ(Event(kGpu, true).native(), timing);

  CUstream_st* native = nullptr;
  {
    const Stream stream(kGpu);
    native = stream.view().native();
    const Busy busy(stream);
  }
  const Stream other(kGpu);
  EXPECT_NE(other.view().native(), native) << "a busy stream was handed out";
  ddp::synchronize(kGpu);
  std::vector<Stream> taken;
  bool found = false;
  for (int i = 0; i < 64 && !found; ++i) {
    taken.emplace_back(kGpu);
    found = taken.back().view().native() == native;
  }
  EXPECT_TRUE(found) << "the stream was not kept";
  const Stream high(kGpu, ddp::StreamPriority::high);
  for (const Stream& stream : taken) EXPECT_NE(stream.view().native(), high.view().native());
}

TEST_F(CudaAllocator, AnEventNotRecordedAgainIsNotWaitedFor) {
  const Stream busy_stream(kGpu);
  const Stream stream(kGpu);
  const Busy busy(busy_stream);
  {
    Event late(kGpu);
    late.record(busy_stream);
  }
  const Event reused(kGpu);  // the same native event, whose mark is far away
  EXPECT_TRUE(reused.is_complete());
  stream.view().wait(reused);
  Event here(kGpu);
  here.record(stream);
  here.synchronize();
  Event there(kGpu);
  there.record(busy_stream);
  EXPECT_FALSE(there.is_complete()) << "the stream waited for the other one (or the GPU copies 80 GiB in no time)";
}

TEST_F(CudaAllocator, OneBlockingCallCountsOnce) {
  const std::int64_t blocked = blocking_calls();
  StreamView(kGpu).synchronize();
  EXPECT_EQ(blocking_calls(), blocked + 1);
  ddp::synchronize(kGpu);
  EXPECT_EQ(blocking_calls(), blocked + 2);
  Event event(kGpu);
  event.record(StreamView(kGpu));
  event.synchronize();
  EXPECT_EQ(blocking_calls(), blocked + 3);
  {
    const ddp::core::BlockingScope outer("outer", kGpu, std::source_location::current());
    StreamView(kGpu).synchronize();
  }
  EXPECT_EQ(blocking_calls(), blocked + 4);
}

}  // namespace
