#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "autograd/engine.h"
#include "ddp/autograd/function.h"
#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/autograd/hooks.h"

namespace ddp {
namespace {

using Numbers = std::vector<double>;
using Tensors = std::vector<Tensor>;

Tensor leaf_on(Device device, double value) {
  Tensor x = full({3}, value, {DType::float64, device});
  x.set_requires_grad();
  return x;
}

Numbers numbers(const Tensor& x) { return x.to_vector<double>(); }

TEST(Devices, GradientComesBackToTheOtherDevice) {
  Tensor a = leaf_on(Device::cpu(1), 2.0);
  const Tensor moved = to(a, Device::cpu(0));
  EXPECT_EQ(moved.device(), Device::cpu(0));
  sum(moved * 5.0).backward();
  EXPECT_EQ(a.grad().device(), Device::cpu(1));
  EXPECT_EQ(numbers(a.grad()), (Numbers{5, 5, 5}));
}

TEST(Devices, EachDeviceHasItsThread) {
  const auto caller = std::this_thread::get_id();
  std::set<std::thread::id> threads;
  for (int round = 0; round < 20; ++round) {
    std::vector<Tensor> leaves;
    std::vector<std::thread::id> hooked(4);
    std::vector<int> calls(4, 0);
    Tensor total = zeros({}, {DType::float64, Device::cpu(0)});
    for (int i = 0; i < 4; ++i) {
      leaves.push_back(leaf_on(Device::cpu(i), i + 1.0));
      const auto at = static_cast<std::size_t>(i);
      register_gradient_hook(leaves.back(), [&, at](const Tensor& gradient) {
        EXPECT_EQ(gradient.device(), leaves[at].device());
        EXPECT_FALSE(grad_mode_enabled());
        EXPECT_NE(autograd::current_pass(), 0U);
        hooked[at] = std::this_thread::get_id();
        ++calls[at];
      });
      Tensor y = leaves.back() * leaves.back();
      for (int k = 0; k < 5; ++k) y = y + leaves.back();
      total = total + to(sum(y), Device::cpu(0));
    }
    std::thread::id callback_thread;
    register_gradient_hook(leaves[3], [&](const Tensor&) {
      autograd::queue_callback([&] { callback_thread = std::this_thread::get_id(); });
    });
    total.backward();
    for (std::size_t i = 0; i < 4; ++i) {
      const double want = 2.0 * (static_cast<double>(i) + 1.0) + 5.0;
      EXPECT_EQ(numbers(leaves[i].grad()), (Numbers{want, want, want}));
      EXPECT_EQ(calls[i], 1);
      EXPECT_EQ(hooked[i] == caller, i == 0);
      if (i > 0) threads.insert(hooked[i]);
    }
    EXPECT_EQ(callback_thread, caller);
  }
  EXPECT_EQ(threads.size(), 3U);  // persistent: the same in every round
}

TEST(Devices, OneLeafReachedFromSeveralDevices) {
  for (int round = 0; round < 20; ++round) {
    Tensor w = leaf_on(Device::cpu(0), 1.0);
    std::atomic<int> calls = 0;
    register_gradient_hook(w, [&](const Tensor&) { ++calls; });
    Tensor total = sum(w * 1.0);
    for (int i = 1; i < 4; ++i) {
      const Tensor there = to(w, Device::cpu(i)) * static_cast<double>(i);
      total = total + to(sum(there), Device::cpu(0));
    }
    total.backward();
    EXPECT_EQ(numbers(w.grad()), (Numbers{7, 7, 7}));
    EXPECT_EQ(calls, 1);
  }
}

TEST(Devices, RootOnAnotherDevice) {
  Tensor a = leaf_on(Device::cpu(0), 2.0);
  std::thread::id hooked;
  register_gradient_hook(a, [&](const Tensor&) { hooked = std::this_thread::get_id(); });
  sum(to(a * 2.0, Device::cpu(2)) * 3.0).backward();
  EXPECT_EQ(numbers(a.grad()), (Numbers{6, 6, 6}));
  EXPECT_NE(hooked, std::this_thread::get_id());  // the caller works for cpu:2
}

TEST(Devices, ExceptionOnAWorker) {
  Tensor a = leaf_on(Device::cpu(1), 2.0);
  Tensor b = leaf_on(Device::cpu(0), 2.0);
  bool broken = true;
  const auto pass = [](FunctionContext&, const Tensors& in) { return in; };
  const auto fragile = [&](FunctionContext&, const Tensors& g) {
    if (broken) throw std::runtime_error("on the worker");
    return g;
  };
  const Tensor y = sum(to(apply_function("fragile", {a * 1.0}, pass, fragile)[0], Device::cpu(0))) + sum(b * 2.0);
  for (int i = 0; i < 5; ++i) EXPECT_THROW(y.backward({}, true), std::runtime_error);
  broken = false;
  a.zero_grad();
  b.zero_grad();
  y.backward();
  EXPECT_EQ(numbers(a.grad()), (Numbers{1, 1, 1}));
  EXPECT_EQ(numbers(b.grad()), (Numbers{2, 2, 2}));
}

TEST(Devices, ReentrantBackwardOnAWorkerThatReachesBack) {
  Tensor here = leaf_on(Device::cpu(0), 3.0);
  Tensor there = leaf_on(Device::cpu(1), 2.0);
  const auto pass = [](FunctionContext&, const Tensors& in) { return in; };
  const auto again = [&](FunctionContext&, const Tensors& g) {
    const GradModeGuard on(true);
    sum(to(here * 4.0, Device::cpu(1))).backward();
    return g;
  };
  const Tensor y = to(apply_function("again", {there * 1.0}, pass, again)[0], Device::cpu(0));
  sum(y).backward();
  EXPECT_EQ(numbers(here.grad()), (Numbers{4, 4, 4}));
  EXPECT_EQ(numbers(there.grad()), (Numbers{1, 1, 1}));
}

TEST(Devices, PassesOfSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<Numbers> results(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &results] {
      for (int round = 0; round < 25; ++round) {
        Tensor a = leaf_on(Device::cpu(t), 2.0);
        Tensor b = leaf_on(Device::cpu(5), 3.0);
        sum(to(b * b, Device::cpu(t)) * a).backward();
        results[static_cast<std::size_t>(t)] = numbers(b.grad());
        EXPECT_EQ(numbers(a.grad()), (Numbers{9, 9, 9}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Numbers& result : results) EXPECT_EQ(result, (Numbers{12, 12, 12}));
}

}  // namespace
}  // namespace ddp
