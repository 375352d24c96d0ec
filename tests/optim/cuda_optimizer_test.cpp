// Optimisers on the GPU: 20 steps against the CPU, launches counted, nothing that blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "ddp/optim/optim.h"
#include "ddp/trace/recorder.h"
#include "support/cuda_compare.h"
#include "tensor/tensor_impl.h"

namespace ddp::optim {
namespace {

constexpr Device kGpu = Device::cuda(0);
using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Tensor>&)>;

struct Case {
  const char* name;
  Make make;
  std::size_t groups = 1;
};

/// The first half of the parameters in one group, the rest in another.
template <class O, class Group, class Options>
Case two_groups(const char* name, Options first, Options second) {
  return {name,
          [=](const std::vector<Tensor>& p) {
            const auto half = p.begin() + static_cast<std::ptrdiff_t>(p.size() / 2);
            return std::make_unique<O>(std::vector<Group>{{{p.begin(), half}, first}, {{half, p.end()}, second}});
          },
          2};
}
template <class O, class Options>
Case one_group(const char* name, Options options) {
  return {name, [=](const std::vector<Tensor>& p) { return std::make_unique<O>(p, options); }};
}

std::vector<Case> cases() {
  return {
      one_group<SGD>("SGD", SGDOptions{.lr = 0.1}),
      one_group<SGD>("SGD with momentum", SGDOptions{.lr = 0.05, .momentum = 0.9, .dampening = 0.25}),
      one_group<SGD>("Nesterov", SGDOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
      one_group<Adam>("Adam", AdamOptions{.lr = 0.01, .weight_decay = 0.01}),
      one_group<AdamW>("AdamW", AdamWOptions{.lr = 0.01, .weight_decay = 0.1}),
      two_groups<SGD, SGDGroup>("SGD, two groups", SGDOptions{.lr = 0.05, .momentum = 0.9}, SGDOptions{.lr = 0.1}),
      two_groups<AdamW, AdamWGroup>("AdamW, two groups", AdamWOptions{.lr = 0.01}, AdamWOptions{.weight_decay = 0})};
}

std::vector<Tensor> make_parameters(DType dtype, Device device) {
  std::vector<Tensor> result;
  std::uint64_t seed = 1;
  for (const Dims& sizes : {Dims{300, 41}, Dims{41}, Dims{10, 3, 3, 3}, Dims{1}, Dims{5000}}) {
    const Tensor host = tensor(test::random_values(sizes.product(), -1, 1, seed++), sizes);
    result.push_back(raw::to(raw::to(host, dtype), device));
    result.back().set_requires_grad();
  }
  return result;
}

void set_gradients(const std::vector<Tensor>& parameters, int step) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Tensor parameter = parameters[i];
    if (step % 4 == 2 && i == 1) {  // this one is not always used
      parameter.zero_grad();
      continue;
    }
    const auto seed = static_cast<std::uint64_t>(step) * 100 + i;
    const Tensor host = tensor(test::random_values(parameter.numel(), -1, 1, seed), parameter.sizes());
    parameter.set_grad(raw::to(raw::to(host, parameter.dtype()), parameter.device()));
  }
}

TEST(CudaOptimizer, TwentyStepsAsOnTheCpu) {
  for (const DType dtype : {DType::float64, DType::float32}) {
    for (const Case& c : cases()) {
      const std::vector<Tensor> host = make_parameters(dtype, Device::cpu());
      const std::vector<Tensor> device = make_parameters(dtype, kGpu);
      const auto on_host = c.make(host);
      const auto on_device = c.make(device);
      for (int step = 1; step <= 20; ++step) {
        set_gradients(host, step);
        set_gradients(device, step);
        on_host->step();
        on_device->step();
      }
      // float32: each step adds a rounding or two of numbers near the largest, 2^-24 * 20 * 2 = 2.4e-6.
      const double tolerance = dtype == DType::float64 ? 1e-12 : 1e-5;
      for (std::size_t i = 0; i < host.size(); ++i) {
        EXPECT_EQ(test::cuda_compare_detail::difference(device[i].detach(), host[i].detach(), tolerance), "")
            << c.name << ", " << name(dtype) << ", parameter " << i;
        const ParameterState a = on_device->state()[i];
        const ParameterState b = on_host->state()[i];
        EXPECT_EQ(a.step, b.step);
        ASSERT_EQ(a.tensors.size(), b.tensors.size());
        for (std::size_t k = 0; k < a.tensors.size(); ++k) {
          EXPECT_EQ(a.tensors[k].device(), kGpu);
          EXPECT_EQ(test::cuda_compare_detail::difference(a.tensors[k], b.tensors[k], tolerance), "")
              << c.name << ", " << name(dtype) << ", parameter " << i << ", state " << k;
        }
      }
    }
  }
}

TEST(CudaOptimizer, OneLaunchAGroupAndNothingThatBlocks) {
  for (const Case& c : cases()) {
    const std::vector<Tensor> device = make_parameters(DType::float32, kGpu);
    const auto optimizer = c.make(device);
    set_gradients(device, 1);
    optimizer->step();  // makes the states
    set_gradients(device, 3);
    const trace::CounterSnapshot before = trace::snapshot();
    optimizer->step();
    const trace::CounterSnapshot counted = trace::snapshot() - before;
    EXPECT_EQ(counted[trace::Counter::kernel_launches], static_cast<std::int64_t>(c.groups)) << c.name;
    EXPECT_EQ(counted[trace::Counter::blocking_calls], 0) << c.name;
    EXPECT_EQ(counted[trace::Counter::allocations], 0) << c.name;
    EXPECT_EQ(counted[trace::Counter::bytes_copied], 0) << c.name;
  }
}

TEST(CudaOptimizer, LeavesAloneWhatARefusalForbids) {
  for (const Case& c : cases()) {
    const std::vector<Tensor> device = make_parameters(DType::float32, kGpu);
    const auto optimizer = c.make(device);
    set_gradients(device, 1);
    optimizer->step();
    set_gradients(device, 3);
    Tensor word = zeros({1}, {DType::int32, kGpu});
    word.fill_(8);
    device[2].grad().impl()->storage()->set_refusal(word.impl()->storage());
    std::vector<std::vector<float>> before;
    for (const Tensor& p : device) before.push_back(p.to_vector<float>());
    optimizer->step();
    for (std::size_t i = 0; i < device.size(); ++i) {
      EXPECT_EQ(device[i].to_vector<float>() == before[i], i == 2) << c.name << ", parameter " << i;
    }
    word.fill_(0);
    optimizer->step();
    EXPECT_NE(device[2].to_vector<float>(), before[2]) << c.name;
  }
}

// Words raised as a reduction raises them, on the device alone, and taken back by the host.
TEST(CudaOptimizer, ARefusedStepIsAsIfItHadNeverBeen) {
  for (const Case& c : cases()) {
    for (const std::vector<int>& refused : {std::vector<int>{1}, {3}, {3, 4, 5}, {1, 2, 4}}) {
      std::vector<std::vector<double>> numbers[2];
      std::vector<std::int64_t> steps[2];
      for (const bool ask : {false, true}) {
        const std::vector<Tensor> device = make_parameters(DType::float64, kGpu);
        const auto optimizer = c.make(device);
        Tensor word = zeros({16}, {DType::int32, kGpu});
        for (int step = 1; step <= 6; ++step) {
          set_gradients(device, step);
          for (const Tensor& p : device) {
            if (p.grad().defined()) p.grad().impl()->storage()->set_refusal(word.impl()->storage());
          }
          if (std::find(refused.begin(), refused.end(), step) != refused.end()) {
            raw::fill_(word, 1);
            if (ask) {
              const trace::CounterSnapshot before = trace::snapshot();
              optimizer->step();
              const trace::CounterSnapshot counted = trace::snapshot() - before;
              // The first step may settle what the word was before; those behind it are queued like any other.
              if (step > 3 && refused.size() == 3 && refused[0] == 3) {
                EXPECT_EQ(counted[trace::Counter::blocking_calls], 0) << c.name;
              }
            }
            continue;
          }
          word.zero_();
          optimizer->step();
        }
        for (const Tensor& p : device) numbers[ask].push_back(p.to_vector<double>());
        for (const ParameterState& state : optimizer->state()) {
          steps[ask].push_back(state.step);
          for (const Tensor& tensor : state.tensors) numbers[ask].push_back(tensor.to_vector<double>());
        }
      }
      EXPECT_EQ(steps[1], steps[0]) << c.name << ", refused from step " << refused[0];
      EXPECT_EQ(numbers[1] == numbers[0], true) << c.name << ", refused from step " << refused[0];
      EXPECT_EQ(steps[0][0], 6 - static_cast<std::int64_t>(refused.size()));
    }
  }
}

TEST(CudaClipGradNorm, AsOnTheCpuWithoutWaiting) {
  for (const double max_norm : {0.5, 1e9}) {
    const std::vector<Tensor> host = make_parameters(DType::float64, Device::cpu());
    const std::vector<Tensor> device = make_parameters(DType::float64, kGpu);
    set_gradients(host, 2);
    set_gradients(device, 2);
    const Tensor want = clip_grad_norm(host, max_norm);
    const trace::CounterSnapshot before = trace::snapshot();
    const Tensor norm = clip_grad_norm(device, max_norm);
    const trace::CounterSnapshot counted = trace::snapshot() - before;
    EXPECT_EQ(counted[trace::Counter::kernel_launches], 3);  // squares, their sum, the factor
    EXPECT_EQ(counted[trace::Counter::blocking_calls], 0);
    EXPECT_EQ(norm.device(), kGpu);
    EXPECT_EQ(norm.dim(), 0U);
    EXPECT_NEAR(norm.item<double>(), want.item<double>(), 1e-12 * want.item<double>());
    for (std::size_t i = 0; i < host.size(); ++i) {
      if (i == 1) continue;  // has no gradient in this step
      EXPECT_EQ(test::cuda_compare_detail::difference(device[i].grad(), host[i].grad(), 1e-12), "") << i;
    }
  }
  const Tensor lonely = zeros({2}, {DType::float32, kGpu});
  EXPECT_EQ(clip_grad_norm({lonely}, 1).device(), kGpu);
  EXPECT_EQ(clip_grad_norm({lonely}, 1).item<double>(), 0);
}

}  // namespace
}  // namespace ddp::optim
