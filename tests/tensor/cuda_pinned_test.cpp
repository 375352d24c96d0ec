// Page-locked CPU tensors, memory of others, and memory used on several streams.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/device_runtime.h"
#include "core/observer.h"
#include "ddp/core/error.h"
#include "ddp/core/stream.h"
#include "ddp/tensor/tensor.h"
#include "ddp/trace/recorder.h"
#include "support/expect_error.h"
#include "tensor/copy.h"

namespace {

using ddp::Device;
using ddp::DType;
using ddp::MemoryStats;
using ddp::Stream;
using ddp::Tensor;
using ddp::test::expect_error;

constexpr Device kGpu = Device::cuda(0);
constexpr std::int64_t kLong = std::int64_t{64} << 20;  // elements of float32: 256 MiB

std::int64_t blocking_calls() { return ddp::trace::total(ddp::trace::Counter::blocking_calls); }

/// Keeps the current stream busy for some milliseconds: on an H200 about 20.
void keep_busy(const Tensor& a, const Tensor& b) {
  for (int i = 0; i < 160; ++i) ddp::raw::copy_(a, b);
}

Tensor pinned(const ddp::Dims& sizes, DType dtype = DType::float32) {
  return ddp::empty(sizes, {.dtype = dtype, .pinned = true});
}

TEST(CudaPinned, IsSaidOfPageLockedMemoryOnly) {
  const Tensor x = pinned({4});
  EXPECT_TRUE(x.is_pinned());
  EXPECT_EQ(x.device(), Device::cpu());
  EXPECT_FALSE(ddp::empty({4}).is_pinned());
  EXPECT_FALSE(ddp::empty({4}, x.options()).is_pinned());
  EXPECT_FALSE(ddp::empty({4}, {DType::float32, kGpu}).is_pinned());
  EXPECT_TRUE(ddp::raw::slice(x, 0, 1, 3, 1).is_pinned());
  expect_error<ddp::InvalidArgument>([] { ddp::empty({4}, {.device = kGpu, .pinned = true}); },
                                     {"pinned", "not on cuda:0"});
}

TEST(CudaPinned, CopiesThereAndBackDoNotBlock) {
  const Stream stream(kGpu);
  const ddp::StreamGuard guard(stream);
  const Tensor a = ddp::empty({kLong}, {DType::float32, kGpu});
  const Tensor b = ddp::ones({kLong}, {DType::float32, kGpu});
  Tensor host = pinned({1000});
  host.copy_(ddp::raw::to(ddp::arange(1000), DType::float32));
  Tensor back = pinned({1000});
  back.fill_(-1);
  const Tensor device = ddp::empty({1000}, {DType::float32, kGpu});
  const std::int64_t blocked = blocking_calls();
  keep_busy(a, b);
  ddp::raw::copy_(device, host);
  back.copy_(device);
  EXPECT_EQ(*back.data_ptr<float>(), -1.0F) << "the copy was waited for (or 80 GiB were copied in no time)";
  const Tensor other = ddp::raw::to(host, kGpu);
  EXPECT_EQ(blocking_calls(), blocked);
  stream.view().synchronize();
  EXPECT_TRUE(ddp::equal(back, host));
  EXPECT_TRUE(ddp::equal(other, host));
}

TEST(CudaPinned, ConversionsAndStridesDoNotBlockOnTheWayToTheDevice) {
  Tensor host = pinned({4, 6}, DType::int32);
  host.copy_(ddp::raw::reshape(ddp::arange(24, {.dtype = DType::int32}), {4, 6}));
  const Tensor device = ddp::empty({6, 4}, {DType::float32, kGpu});
  const std::int64_t blocked = blocking_calls();
  ddp::raw::copy_(device, ddp::raw::transpose(host, 0, 1));
  EXPECT_EQ(blocking_calls(), blocked);
  EXPECT_EQ(device.to_vector<int>(), ddp::raw::transpose(host, 0, 1).to_vector<int>());
  // Back into a strided part: the host puts the numbers in place, so it has to wait.
  Tensor back = pinned({6, 8});
  back.fill_(0);
  const std::int64_t before = blocking_calls();
  ddp::raw::slice(back, 1, 0, 8, 2).copy_(device);
  EXPECT_EQ(blocking_calls(), before + 1);
  EXPECT_EQ(ddp::raw::slice(back, 1, 0, 8, 2).to_vector<int>(), device.to_vector<int>());
  EXPECT_EQ(ddp::raw::slice(back, 1, 1, 8, 2).to_vector<int>(), std::vector<int>(24, 0));
}

std::string blocking_place;

TEST(CudaPinned, PageableCopiesBlockAndNameTheirCaller) {
  static const ddp::core::Observer observer{
      .blocking_call = [](const char* what, Device, std::int64_t, std::source_location where) {
        blocking_place += std::string(what) + " " + ddp::to_string(where) + ";";
      }};
  const ddp::core::Observer* previous = ddp::core::observer();
  const Tensor host = ddp::zeros({10});
  Tensor device = ddp::empty({10}, {DType::float32, kGpu});
  ddp::core::set_observer(&observer);
  device.copy_(host);
  const auto line = std::source_location::current().line() - 1;
  ddp::core::set_observer(previous);
  EXPECT_EQ(blocking_place, "copy of pageable memory cuda_pinned_test.cpp:" + std::to_string(line) + ";");
}

TEST(CudaPinned, MemoryIsNotReusedBeforeItsCopyIsDone) {
  ddp::release_cached_pinned_memory();
  const Stream stream(kGpu);
  const ddp::StreamGuard guard(stream);
  const Tensor a = ddp::empty({kLong}, {DType::float32, kGpu});
  const Tensor b = ddp::ones({kLong}, {DType::float32, kGpu});
  const Tensor device = ddp::zeros({1 << 18}, {DType::float32, kGpu});
  keep_busy(a, b);
  const void* address = nullptr;
  {
    Tensor host = pinned({1 << 18});
    host.fill_(5);
    address = host.data();
    ddp::raw::copy_(device, host);
  }
  Tensor next = pinned({1 << 18});
  next.fill_(6);
  EXPECT_NE(next.data(), address);
  EXPECT_EQ(device.to_vector<float>(), std::vector<float>(1 << 18, 5.0F));
  EXPECT_EQ(pinned({1 << 18}).data(), address) << "the copy is done: the memory is free";
}

TEST(CudaPinned, SteadyUseAsksTheSystemForNothing) {
  const auto step = [] {
    Tensor host = pinned({1 << 16});
    host.fill_(1);
    const Tensor device = ddp::raw::to(host, kGpu);
    ddp::current_stream(kGpu).synchronize();
  };
  step();
  step();
  const MemoryStats before = ddp::pinned_memory_stats();
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(ddp::pinned_memory_stats().system_allocations, before.system_allocations);
  EXPECT_EQ(ddp::pinned_memory_stats().in_use, before.in_use);
  EXPECT_EQ(ddp::pinned_memory_stats().allocations, before.allocations + 20);
}

TEST(CudaPinned, FromBlobLooksWhereTheMemoryIs) {
  ddp::core::DeviceRuntime& cuda = ddp::core::cuda_runtime();
  void* device = cuda.allocate(kGpu, 64);
  void* host = cuda.allocate_pinned(64);
  float pageable[16] = {};
  {
    Tensor on_device = ddp::from_blob(device, {16}, {DType::float32, kGpu});
    on_device.fill_(3);
    EXPECT_EQ(on_device.to_vector<float>(), std::vector<float>(16, 3.0F));
    Tensor on_host = ddp::from_blob(host, {16}, {});
    EXPECT_TRUE(on_host.is_pinned());
    const std::int64_t blocked = blocking_calls();
    on_host.copy_(on_device);
    EXPECT_EQ(blocking_calls(), blocked);
    ddp::synchronize(kGpu);
    EXPECT_EQ(on_host.to_vector<float>(), std::vector<float>(16, 3.0F));
    EXPECT_FALSE(ddp::from_blob(pageable, {16}, {}).is_pinned());
  }
  EXPECT_TRUE(ddp::from_blob(host, {16}, {.pinned = true}).is_pinned());
  expect_error<ddp::InvalidArgument>([&] { ddp::from_blob(host, {16}, {DType::float32, kGpu}); },
                                     {"pinned host memory", "given as memory of cuda:0"});
  expect_error<ddp::InvalidArgument>([&] { ddp::from_blob(pageable, {16}, {DType::float32, kGpu}); },
                                     {"pageable host memory", "given as memory of cuda:0"});
  expect_error<ddp::InvalidArgument>([&] { ddp::from_blob(device, {16}, {}); },
                                     {"memory of cuda:0", "given as memory of cpu:0"});
  expect_error<ddp::InvalidArgument>([&] { ddp::from_blob(pageable, {16}, {.pinned = true}); },
                                     {"pageable host memory", "given as pinned host memory"});
  if (ddp::device_count(ddp::DeviceType::cuda) > 1) {
    expect_error<ddp::InvalidArgument>([&] { ddp::from_blob(device, {16}, {DType::float32, Device::cuda(1)}); },
                                       {"memory of cuda:0", "given as memory of cuda:1"});
  }
  cuda.deallocate(kGpu, device, 64);
  cuda.deallocate_pinned(host);
}

TEST(CudaPinned, OthersMemoryIsReleasedAfterTheCopiesFromIt) {
  const Stream stream(kGpu);
  const ddp::StreamGuard guard(stream);
  const Tensor a = ddp::empty({kLong}, {DType::float32, kGpu});
  const Tensor b = ddp::ones({kLong}, {DType::float32, kGpu});
  constexpr std::int64_t kCount = 1 << 18;
  const Tensor device = ddp::zeros({kCount}, {DType::float32, kGpu});
  void* host = ddp::core::cuda_runtime().allocate_pinned(kCount * sizeof(float));
  keep_busy(a, b);
  {
    // What the owner does with it afterwards shall not be seen by the copy.
    Tensor blob = ddp::from_blob(host, {kCount}, {}, {}, [&] {
      for (std::int64_t i = 0; i < kCount; ++i) static_cast<float*>(host)[i] = -1;
    });
    blob.fill_(4);
    ddp::raw::copy_(device, blob);
  }
  EXPECT_EQ(*static_cast<float*>(host), -1.0F);
  EXPECT_EQ(device.to_vector<float>(), std::vector<float>(kCount, 4.0F));
  ddp::core::cuda_runtime().deallocate_pinned(host);
}

TEST(CudaPinned, ATensorUsedOnAnotherStreamKeepsItsMemoryUntilThen) {
  ddp::synchronize(kGpu);
  ddp::release_cached_memory(kGpu);
  const Stream own(kGpu);
  const Stream user(kGpu);
  constexpr std::int64_t kCount = 1 << 18;
  const ddp::StreamGuard on_user(user);
  const Tensor a = ddp::empty({kLong}, {DType::float32, kGpu});
  const Tensor b = ddp::ones({kLong}, {DType::float32, kGpu});
  const Tensor seen = ddp::empty({kCount}, {DType::float32, kGpu});
  const void* address = nullptr;
  {
    Tensor x;
    {
      const ddp::StreamGuard on_own(own);
      x = ddp::full({kCount}, 7, {DType::float32, kGpu});
      address = x.data();
    }
    user.view().wait_for(own);
    keep_busy(a, b);
    ddp::raw::copy_(seen, x);
    x.used_on(user);
    x.used_on(user);  // saying it twice changes nothing
  }
  {
    const ddp::StreamGuard on_own(own);
    const MemoryStats before = ddp::memory_stats(kGpu);
    const Tensor next = ddp::full({kCount}, 8, {DType::float32, kGpu});
    EXPECT_EQ(next.data(), address);
    EXPECT_EQ(ddp::memory_stats(kGpu).system_allocations, before.system_allocations);
    EXPECT_EQ(next.to_vector<float>(), std::vector<float>(kCount, 8.0F));
  }
  EXPECT_EQ(seen.to_vector<float>(), std::vector<float>(kCount, 7.0F));
}

}  // namespace
