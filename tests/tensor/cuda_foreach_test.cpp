// Optimiser steps and norms over tables of chunks on the GPU against the CPU.
#include "tensor/foreach.h"

#include <gtest/gtest.h>

#include "ddp/trace/recorder.h"
#include "support/cuda_compare.h"
#include "tensor/tensor_impl.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;

constexpr Device kGpu = Device::cuda(0);

// Only dense memory goes into a table; odd offsets forbid loads of 16 bytes.
CudaCompare dense() {
  return {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16},
          .layouts = {CudaLayout::row_major, CudaLayout::offset}};
}

raw::Chunk chunk_of(const Inputs& in, std::size_t from, std::int64_t step) {
  return {.parameter = in[from].data(),
          .gradient = in[from + 1].data(),
          .state0 = in[from + 2].data(),
          .state1 = in[from + 3].data(),
          .numel = in[from].numel(),
          .step = step,
          .dtype = in[from].dtype()};
}

/// Parameter, gradient and two states (the second positive) of these sizes.
std::vector<CudaInput> updated(const Dims& sizes) {
  return {{.sizes = sizes, .written = true},
          {.sizes = sizes},
          {.sizes = sizes, .written = true},
          {.sizes = sizes, .low = 0.01, .written = true}};
}
Inputs changed(const Inputs& in) { return {in[0], in[2], in[3]}; }

TEST(CudaSgd, EveryVariant) {
  const raw::SgdParams variants[] = {{.lr = 0.1},
                                     {.lr = 0.1, .weight_decay = 0.25},
                                     {.lr = 0.1, .momentum = 0.9},
                                     {.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
                                     {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}};
  for (const raw::SgdParams& params : variants) {
    for (const std::int64_t step : {1, 2}) {
      for (const Dims& sizes : {Dims{1}, Dims{3, 5}, Dims{7000}, Dims{0}}) {
        compare_cuda(
            "sgd", updated(sizes),
            [&](const Inputs& in) {
              const raw::Chunk chunk = chunk_of(in, 0, step);
              raw::sgd_step({&chunk, 1}, params, in[0].device());
              return changed(in);
            },
            dense());
      }
    }
  }
}

TEST(CudaAdam, EveryVariant) {
  const raw::AdamParams variants[] = {
      {.lr = 0.01},
      {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4, .weight_decay = 0.1},
      {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4, .weight_decay = 0.1, .decoupled = true}};
  for (const raw::AdamParams& params : variants) {
    for (const std::int64_t step : {1, 2, 1000}) {
      for (const Dims& sizes : {Dims{1}, Dims{3, 5}, Dims{7000}, Dims{0}}) {
        compare_cuda(
            "adam", updated(sizes),
            [&](const Inputs& in) {
              const raw::Chunk chunk = chunk_of(in, 0, step);
              raw::adam_step({&chunk, 1}, params, in[0].device());
              return changed(in);
            },
            dense());
      }
    }
  }
}

struct Model {
  Model(int count, Device device) {
    const DType dtypes[] = {DType::float32, DType::bfloat16, DType::float64, DType::float16};
    for (int i = 0; i < count; ++i) {
      const auto seed = static_cast<std::uint64_t>(i);
      const std::int64_t n = 1 + i % 7 * 5;
      const DType dtype = dtypes[i % 4];
      const auto random = [&](std::uint64_t salt) {
        return raw::to(raw::to(ddp::tensor(random_values(n, -1, 1, seed * 4 + salt), {n}), dtype), device);
      };
      parameters.push_back(random(0));
      gradients.push_back(random(1));
      states.push_back(random(2));
      chunks.push_back({.parameter = parameters.back().data(),
                        .gradient = i % 11 == 5 ? nullptr : gradients.back().data(),
                        .state0 = states.back().data(),
                        .numel = i % 13 == 7 ? 0 : n,
                        .step = 1 + i % 3,
                        .dtype = dtype});
    }
  }
  std::vector<Tensor> parameters, gradients, states;
  std::vector<raw::Chunk> chunks;
};

TEST(CudaSgd, ManyChunksOfAllTypesInAFewLaunches) {
  for (const int count : {1, 60, 400, 1500}) {
    Model host(count, Device::cpu());
    Model device(count, kGpu);
    const raw::SgdParams params{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1};
    raw::sgd_step(host.chunks, params, Device::cpu());
    const std::int64_t before = trace::total(trace::Counter::kernel_launches);
    raw::sgd_step(device.chunks, params, kGpu);
    const std::int64_t launches = trace::total(trace::Counter::kernel_launches) - before;
    // 408 chunks fit a launch; 1259 of the 1500 have a gradient and elements.
    EXPECT_EQ(launches, count <= 408 ? 1 : 4) << count << " chunks";
    for (std::size_t i = 0; i < host.parameters.size(); ++i) {
      const double tolerance = cuda_compare_detail::tolerance_of(host.parameters[i].dtype());
      ASSERT_EQ(cuda_compare_detail::difference(device.parameters[i], host.parameters[i], tolerance), "")
          << "chunk " << i;
      ASSERT_EQ(cuda_compare_detail::difference(device.states[i], host.states[i], tolerance), "") << "chunk " << i;
    }
  }
}

TEST(CudaSgd, NothingToDoLaunchesNothing) {
  const Tensor p = ones({3}, {DType::float32, kGpu});
  const std::vector<raw::Chunk> chunks = {{.parameter = p.data(), .numel = 3}, {.gradient = p.data(), .numel = 0}};
  const std::int64_t before = trace::total(trace::Counter::kernel_launches);
  raw::sgd_step(chunks, {}, kGpu);
  EXPECT_EQ(trace::total(trace::Counter::kernel_launches), before);
  EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{1, 1, 1}));
}

TEST(CudaForeach, RefusedChunksStayAsTheyAre) {
  for (const bool adam : {false, true}) {
    for (const std::int64_t n : {5, 5000}) {
      std::vector<Tensor> memory;  // p, g, s0, s1 of three parameters
      std::vector<raw::Chunk> chunks;
      const Tensor words = raw::to(ddp::tensor<std::int32_t>({0, 4}), kGpu);
      const Tensor counts = zeros({3}, {DType::int32, kGpu});
      for (std::size_t i = 0; i < 3; ++i) {
        for (int k = 0; k < 4; ++k) memory.push_back(full({n}, 0.5, {DType::float32, kGpu}));
        chunks.push_back(chunk_of(memory, 4 * i, 2));
        if (i < 2) chunks.back().refusal = reinterpret_cast<const std::uint32_t*>(words.data_ptr<std::int32_t>()) + i;
        chunks.back().refused = reinterpret_cast<std::uint32_t*>(counts.data_ptr<std::int32_t>()) + i;
      }
      if (adam) {
        raw::adam_step(chunks, {.lr = 0.25}, kGpu);
      } else {
        raw::sgd_step(chunks, {.lr = 0.25, .momentum = 0.5}, kGpu);
      }
      EXPECT_EQ(counts.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 0}));
      const std::vector<float> as_before(static_cast<std::size_t>(n), 0.5F);
      for (std::size_t i = 0; i < 3; ++i) {
        const bool refused = i == 1;
        EXPECT_EQ(memory[4 * i].to_vector<float>() == as_before, refused) << i;
        // beta1 * 0.5 + (1 - beta1) * 0.5 is 0.5 but for rounding; the second moment and sgd's momentum change.
        EXPECT_EQ(memory[4 * i + (adam ? 3 : 2)].to_vector<float>() == as_before, refused) << i;
      }
    }
  }
}

TEST(CudaTotalNorm, OverAllTensors) {
  const auto norm = [](const Inputs& in) { return raw::total_norm(in); };
  compare_cuda("total norm", {{.sizes = {3}}, {.sizes = {70, 101}}, {.sizes = {0}}, {.sizes = {}}}, norm, dense());
  compare_cuda("norm of much", {{.sizes = {300, 4001}}}, norm, dense());
  compare_cuda("norm of nothing", {{.sizes = {0}}}, norm, dense());
  // Squares that float32 does not hold.
  compare_cuda("large norm", {{.sizes = {3000}, .low = 1e25, .high = 1e26}}, norm,
               {.dtypes = {DType::float32}, .layouts = {CudaLayout::row_major}});
  compare_cuda("small norm", {{.sizes = {3000}, .low = 1e-30, .high = 1e-29}}, norm,
               {.dtypes = {DType::float32}, .layouts = {CudaLayout::row_major}});
  const Tensor none = raw::total_norm({});
  EXPECT_EQ(none.item<double>(), 0);
  EXPECT_EQ(none.dim(), 0U);
}

TEST(CudaScaleAll, EveryDtype) {
  compare_cuda(
      "scale all",
      {{.sizes = {3}, .written = true}, {.sizes = {70, 101}, .written = true}, {.sizes = {0}, .written = true}},
      [](const Inputs& in) {
        raw::scale_all_(in, 0.3);
        return in;
      },
      dense());
}

TEST(CudaClipAll, ScalesWhatIsTooLong) {
  for (const double max_norm : {0.5, 1e6}) {
    compare_cuda(
        "clip all",
        {{.sizes = {3}, .written = true}, {.sizes = {70, 101}, .written = true}, {.sizes = {0}, .written = true}},
        [&](const Inputs& in) {
          const Tensor norm = raw::total_norm(in);
          raw::clip_all_(in, norm, max_norm);
          return Inputs{in[0], in[1], norm};
        },
        dense());
  }
}

}  // namespace
}  // namespace ddp
