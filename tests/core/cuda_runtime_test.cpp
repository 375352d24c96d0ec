// The CUDA device runtime: memory, copies, streams, events.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/allocator.h"
#include "core/device_runtime.h"
#include "core/observer.h"
#include "ddp/core/error.h"
#include "ddp/core/stream.h"

namespace {

using ddp::Device;
using ddp::Event;
using ddp::Stream;
using ddp::StreamView;

ddp::core::DeviceRuntime& runtime() { return ddp::core::device_runtime(ddp::DeviceType::cuda); }
constexpr Device kGpu = Device::cuda(0);
constexpr Device kHost = Device::cpu(0);

/// Memory of the caching allocator for one scope.
class Block {
 public:
  Block(std::size_t bytes, StreamView stream)
      : bytes_(bytes), stream_(stream), data_(ddp::core::allocate(bytes, stream)) {}
  ~Block() { ddp::core::deallocate(data_, bytes_, stream_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  StreamView stream_;
  void* data_;
};

std::vector<int> numbers(std::size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(CudaRuntime, CopiesToTheDeviceAndBack) {
  const StreamView stream(kGpu);
  const std::vector<int> sent = numbers(1 << 20);
  const std::size_t bytes = sent.size() * sizeof(int);
  const Block block(bytes, stream);
  std::vector<int> received(sent.size(), -1);
  runtime().copy(block.data(), kGpu, sent.data(), kHost, bytes, stream);
  runtime().copy(received.data(), kHost, block.data(), kGpu, bytes, stream);
  EXPECT_EQ(received, sent);  // pageable memory: the copy has waited
}

TEST(CudaRuntime, FillsWithZero) {
  const StreamView stream(kGpu);
  std::vector<int> values = numbers(1000);
  const Block block(values.size() * sizeof(int), stream);
  runtime().copy(block.data(), kGpu, values.data(), kHost, values.size() * sizeof(int), stream);
  runtime().fill_zero(block.data(), 500 * sizeof(int), stream);
  runtime().copy(values.data(), kHost, block.data(), kGpu, values.size() * sizeof(int), stream);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i < 500 ? 0 : static_cast<int>(i) + 1) << i;
}

TEST(CudaRuntime, AnEventOrdersTwoStreams) {
  const Stream first(kGpu);
  const Stream second(kGpu, ddp::StreamPriority::high);
  const std::size_t bytes = std::size_t{64} << 20;
  const Block a(bytes, first);
  const Block b(bytes, first);
  const std::vector<int> sent(bytes / sizeof(int), 7);
  std::vector<int> received(sent.size(), -1);
  // Many queued copies keep the first stream busy, so that an unordered second stream would read too early.
  runtime().copy(a.data(), kGpu, sent.data(), kHost, bytes, first);
  runtime().fill_zero(b.data(), bytes, first);
  for (int i = 0; i < 50; ++i) runtime().copy(b.data(), kGpu, b.data(), kGpu, bytes, first);
  runtime().copy(b.data(), kGpu, a.data(), kGpu, bytes, first);
  Event done(kGpu);
  done.record(first);
  second.view().wait(done);
  runtime().copy(received.data(), kHost, b.data(), kGpu, bytes, second);
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(done.is_complete());
}

TEST(CudaRuntime, TimingEventsMeasureAtLeastZero) {
  const Stream stream(kGpu);
  Event before(kGpu, true);
  Event after(kGpu, true);
  before.record(stream);
  after.record(stream);
  after.synchronize();
  EXPECT_GE(after.milliseconds_since(before), 0.0);
}

TEST(CudaRuntime, AnEventNeverRecordedIsComplete) { EXPECT_TRUE(Event(kGpu).is_complete()); }

TEST(CudaRuntime, FreedMemoryIsHandedOutAgain) {
  const Stream stream(kGpu);
  void* first = ddp::core::allocate(1 << 16, stream);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 256, 0U);
  ddp::core::deallocate(first, 1 << 16, stream);
  const auto before = ddp::memory_stats(kGpu);
  const Block again(1 << 16, stream);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(ddp::memory_stats(kGpu).system_allocations, before.system_allocations);
}

TEST(CudaRuntime, TooMuchMemoryIsOutOfMemoryAndNotFatal) {
  const StreamView stream(kGpu);
  EXPECT_THROW(ddp::core::allocate(std::size_t{1} << 46, stream), ddp::OutOfMemory);
  const Block block(64, stream);  // the device still works
  runtime().fill_zero(block.data(), 64, stream);
  stream.synchronize();
}

TEST(CudaRuntime, AFailedCallNamesItself) {
  int host = 0;
  try {
    runtime().copy(nullptr, kGpu, &host, kHost, sizeof host, StreamView(kGpu));
    FAIL() << "a copy to null was accepted";
  } catch (const ddp::DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("cudaMemcpyAsync"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("runtime.cpp:"), std::string::npos) << error.what();
  }
  runtime().synchronize_device(kGpu);  // the error is not left for the next call
}

TEST(CudaRuntime, ADeviceThatIsNotThereIsRefused) {
  EXPECT_THROW(ddp::synchronize(Device::cuda(ddp::device_count(ddp::DeviceType::cuda))), ddp::InvalidArgument);
}

int blocking_calls = 0;

TEST(CudaRuntime, CopiesOfPageableMemoryAreReportedAsBlocking) {
  static const ddp::core::Observer observer{
      .blocking_call = [](const char*, Device, std::int64_t, std::source_location) { ++blocking_calls; }};
  const ddp::core::Observer* previous = ddp::core::observer();
  ddp::core::set_observer(&observer);
  const StreamView stream(kGpu);
  const Block block(64, stream);
  int host = 3;
  runtime().copy(block.data(), kGpu, &host, kHost, sizeof host, stream);
  EXPECT_EQ(blocking_calls, 1);
  runtime().copy(static_cast<char*>(block.data()) + 32, kGpu, block.data(), kGpu, sizeof host, stream);
  EXPECT_EQ(blocking_calls, 1);
  ddp::core::set_observer(previous);
}

}  // namespace
