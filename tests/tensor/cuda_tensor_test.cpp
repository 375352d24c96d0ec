// A CUDA tensor is made, filled, copied to and from, converted and added, with the results of the CPU.
#include <gtest/gtest.h>

#include <limits>

#include "ddp/core/error.h"
#include "ddp/core/stream.h"
#include "ddp/tensor/tensor.h"
#include "tensor/copy.h"
#include "tensor/elementwise.h"

namespace {

using ddp::Device;
using ddp::DType;
using ddp::Tensor;

constexpr Device kGpu = Device::cuda(0);
constexpr DType kTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                            DType::int32,   DType::int64,   DType::uint8,   DType::boolean};

Tensor numbers(std::int64_t count, DType dtype) { return ddp::raw::to(ddp::arange(count), dtype); }

TEST(CudaTensor, IsMadeAndFilled) {
  for (const DType dtype : kTypes) {
    const Tensor x = ddp::full({3, 5}, 1, {dtype, kGpu});
    EXPECT_EQ(x.device(), kGpu);
    EXPECT_EQ(x.to_vector<double>(), std::vector<double>(15, 1)) << name(dtype);
    EXPECT_EQ(ddp::zeros({4}, {dtype, kGpu}).to_vector<double>(), std::vector<double>(4, 0)) << name(dtype);
  }
  EXPECT_EQ(ddp::ones({}, {DType::float32, kGpu}).item<float>(), 1.0F);
  EXPECT_EQ(ddp::arange(5, {DType::int32, kGpu}).to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(CudaTensor, TravelsThereAndBack) {
  for (const DType dtype : kTypes) {
    const Tensor host = numbers(120, dtype);
    const Tensor device = ddp::raw::to(host, kGpu);
    EXPECT_TRUE(ddp::equal(ddp::raw::to(device, Device::cpu()), host)) << name(dtype);
    EXPECT_TRUE(ddp::equal(device, host)) << name(dtype);
  }
}

TEST(CudaTensor, StridedAndConvertedAcrossDevices) {
  const Tensor host = ddp::raw::reshape(numbers(24, DType::int32), {4, 6});
  const Tensor turned = ddp::raw::transpose(host, 0, 1);
  Tensor device = ddp::empty({6, 4}, {DType::float32, kGpu});
  device.copy_(turned);
  EXPECT_EQ(device.to_vector<double>(), turned.to_vector<double>());
  // Into a strided part of a device tensor, from the host and from the device.
  Tensor parts = ddp::zeros({6, 8}, {DType::float32, kGpu});
  ddp::raw::slice(parts, 1, 1, 8, 2).copy_(turned);
  Tensor back = ddp::empty({4, 6});
  back.copy_(ddp::raw::transpose(ddp::raw::slice(parts, 1, 1, 8, 2), 0, 1));
  EXPECT_EQ(back.to_vector<double>(), host.to_vector<double>());
  EXPECT_EQ(ddp::raw::slice(parts, 1, 0, 8, 2).to_vector<double>(), std::vector<double>(24, 0));
}

TEST(CudaTensor, EveryConversionIsTheHosts) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      const Tensor host = numbers(100, from);
      EXPECT_TRUE(ddp::equal(ddp::raw::to(ddp::raw::to(host, kGpu), to), ddp::raw::to(host, to)))
          << name(from) << " to " << name(to);
    }
  }
}

TEST(CudaTensor, WhatDoesNotFitIsConvertedAsOnTheHost) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor host = ddp::tensor<float>(
      {300.0F, -5.0F, 255.5F, 3e9F, -3e9F, 1e20F, -1e20F, inf, -inf, -0.9F, std::numeric_limits<float>::quiet_NaN()});
  for (const DType from : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const DType to : {DType::uint8, DType::int32, DType::int64}) {
      const Tensor values = ddp::raw::to(host, from);
      EXPECT_EQ(ddp::raw::to(ddp::raw::to(values, kGpu), to).to_vector<std::int64_t>(),
                ddp::raw::to(values, to).to_vector<std::int64_t>())
          << name(from) << " to " << name(to);
    }
  }
}

TEST(CudaTensor, AddsAndSubtractsWithBroadcasting) {
  for (const DType dtype : kTypes) {
    if (dtype == DType::boolean) continue;
    const Tensor a = ddp::raw::reshape(numbers(6, dtype), {2, 3});
    const Tensor b = numbers(3, dtype);
    const Tensor sum = ddp::raw::binary(ddp::raw::Binary::add, ddp::raw::to(a, kGpu), ddp::raw::to(b, kGpu));
    EXPECT_TRUE(ddp::equal(sum, ddp::raw::binary(ddp::raw::Binary::add, a, b))) << name(dtype);
    const Tensor difference = ddp::raw::binary(ddp::raw::Binary::sub, ddp::raw::to(a, kGpu), ddp::raw::to(b, kGpu));
    EXPECT_TRUE(ddp::equal(difference, ddp::raw::binary(ddp::raw::Binary::sub, a, b))) << name(dtype);
    Tensor y = ddp::raw::to(a, kGpu);
    y.add_(ddp::raw::to(b, kGpu), 3);
    EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0, 4, 8, 3, 7, 11})) << name(dtype);
  }
}

TEST(CudaTensor, RunsOnTheCurrentStream) {
  const ddp::Stream stream(kGpu);
  const ddp::StreamGuard guard(stream);
  Tensor x = ddp::zeros({1 << 20}, {DType::float32, kGpu});
  const Tensor one = ddp::ones({1}, {DType::float32, kGpu});
  for (int i = 0; i < 100; ++i) x.add_(one);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1 << 20, 100.0F));
}

TEST(CudaTensor, MemoryIsCounted) {
  ddp::reset_peak_memory(kGpu);
  const auto before = ddp::memory_stats(kGpu);
  {
    const Tensor x = ddp::empty({1 << 18}, {DType::float32, kGpu});
    EXPECT_EQ(ddp::memory_stats(kGpu).in_use, before.in_use + (1 << 20));
  }
  EXPECT_EQ(ddp::memory_stats(kGpu).in_use, before.in_use);
  EXPECT_EQ(ddp::memory_stats(kGpu).peak, before.in_use + (1 << 20));
}

}  // namespace
