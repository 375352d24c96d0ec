// Backward on the streams of forward: what is late on one of them must still be in order.
#include <gtest/gtest.h>

#include <thread>

#include "autograd/accumulate_grad.h"
#include "autograd/engine.h"
#include "ddp/autograd/function.h"
#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/autograd/hooks.h"

namespace ddp {
namespace {

using Numbers = std::vector<double>;
using Tensors = std::vector<Tensor>;

constexpr Device kGpu = Device::cuda(0);
constexpr std::int64_t kElements = 4096;

// Some 10 ms of work on the current stream.
void delay() {
  static const Tensor large = empty({64 << 20}, {DType::float32, kGpu});
  Tensor x = large;
  for (int i = 0; i < 100; ++i) x.fill_(i);
}

Tensor leaf_on(Device device, double value) {
  Tensor x = full({kElements}, value, {DType::float64, device});
  x.set_requires_grad();
  return x;
}

Numbers all(double value) { return Numbers(kElements, value); }
Numbers numbers(const Tensor& x) { return x.to_vector<double>(); }

// The identity; its forward or backward, on whatever stream, comes late.
Tensor late(const Tensor& x, bool forward) {
  return apply_function(
      "late", {x},
      [forward](FunctionContext&, const Tensors& in) {
        if (forward) delay();
        return Tensors{clone(in[0])};
      },
      [forward](FunctionContext&, const Tensors& grads) {
        if (!forward) delay();
        return Tensors{clone(grads[0])};
      })[0];
}

void backward(const Tensor& y) { y.backward(ones(y.sizes(), y.options())); }

TEST(Streams, BackwardRunsOnTheStreamOfForwardAndTheCallerComesAfterIt) {
  for (int round = 0; round < 10; ++round) {
    const Stream side(kGpu);
    Tensor w = leaf_on(kGpu, 2);
    synchronize(kGpu);
    StreamView hooked(kGpu);
    register_gradient_hook(w, [&](const Tensor&) { hooked = current_stream(kGpu); });
    Tensor y;
    {
      const StreamGuard guard(side);
      y = late(w * w, false) * 3.0;
    }
    backward(y);
    EXPECT_EQ(current_stream(kGpu), StreamView(kGpu));
    EXPECT_EQ(hooked, side.view());
    const Tensor read = w.grad() + 0.0;  // on the caller's stream
    EXPECT_EQ(numbers(read), all(12));
  }
}

TEST(Streams, TheCallersWorkComesBeforeBackward) {
  const Stream side(kGpu);
  Tensor w = leaf_on(kGpu, 2);
  synchronize(kGpu);
  Tensor y;
  {
    const StreamGuard guard(side);
    y = w * 3.0;
  }
  Tensor seed = zeros(y.sizes(), y.options());
  delay();
  seed.fill_(5);
  y.backward(seed);
  EXPECT_EQ(numbers(w.grad()), all(15));
}

TEST(Streams, BranchesOnSeveralStreamsAddUpInOneLeaf) {
  for (int round = 0; round < 10; ++round) {
    const Stream one(kGpu);
    const Stream two(kGpu);
    Tensor w = leaf_on(kGpu, 2);
    Tensor inner = w * 1.0;
    synchronize(kGpu);
    Tensor a;
    Tensor b;
    Tensor c;
    {
      const StreamGuard guard(one);
      a = late(w * 2.0, round % 2 == 0) + late(inner * 10.0, false);
    }
    {
      const StreamGuard guard(two);
      b = late(w * 3.0, round % 2 == 1) + inner * 100.0;
    }
    c = w * 4.0;
    current_stream(kGpu).wait_for(one);
    current_stream(kGpu).wait_for(two);
    backward(a + b + c);
    EXPECT_EQ(numbers(w.grad() + 0.0), all(2 + 3 + 4 + 10 + 100));
    // Added to, with the first sum still there.
    {
      const StreamGuard guard(two);
      two.view().wait_for(StreamView(kGpu));
      b = late(w * 1000.0, false);
    }
    backward(b);
    EXPECT_EQ(numbers(w.grad() + 0.0), all(1119));
  }
}

TEST(Streams, BackwardOfTheDefaultStreamCalledOnAnother) {
  const Stream side(kGpu);
  Tensor w = leaf_on(kGpu, 2);
  const Tensor y = late(w * 3.0, false);
  const StreamGuard guard(side);
  side.view().wait_for(StreamView(kGpu));
  backward(y);
  EXPECT_EQ(numbers(w.grad() + 0.0), all(3));
}

// What a hook that runs a backward of its own leaves is in order as well.
TEST(Streams, BackwardInsideAHook) {
  const Stream side(kGpu);
  Tensor w = leaf_on(kGpu, 2);
  Tensor v = leaf_on(kGpu, 1);
  synchronize(kGpu);
  register_gradient_hook(w, [&](const Tensor&) {
    const GradModeGuard on(true);
    backward(late(v * 7.0, false));
  });
  Tensor y;
  {
    const StreamGuard guard(side);
    y = late(w * 3.0, false);
  }
  backward(y);
  EXPECT_EQ(numbers(w.grad() + 0.0), all(3));
  EXPECT_EQ(numbers(v.grad() + 0.0), all(7));
}

TEST(Streams, GraphOverCpuAndGpu) {
  for (const bool from_gpu : {true, false}) {
    for (int round = 0; round < 5; ++round) {
      const Stream side(kGpu);
      Tensor here = leaf_on(Device::cpu(), 3);
      Tensor there = leaf_on(kGpu, 2);
      synchronize(kGpu);
      std::thread::id here_thread;
      std::thread::id there_thread;
      register_gradient_hook(here, [&](const Tensor&) { here_thread = std::this_thread::get_id(); });
      register_gradient_hook(there, [&](const Tensor& gradient) {
        there_thread = std::this_thread::get_id();
        EXPECT_EQ(current_stream(gradient.device()), side.view());
      });
      Tensor y;
      {
        const StreamGuard guard(side);
        const Tensor moved = to(here * 5.0, kGpu);
        y = late(moved * there, false) + late(there * 1.0, false);
        if (!from_gpu) y = to(y, Device::cpu()) + here;
      }
      backward(y);
      EXPECT_EQ(numbers(here.grad()), all(from_gpu ? 10 : 11));
      EXPECT_EQ(numbers(there.grad() + 0.0), all(16));
      EXPECT_EQ(here_thread == std::this_thread::get_id(), !from_gpu);
      EXPECT_EQ(there_thread == std::this_thread::get_id(), from_gpu);
    }
  }
}

// Memory that one stream has made and another one uses is not given to somebody else meanwhile.
TEST(Streams, MemoryIsNotReusedTooEarly) {
  const Stream side(kGpu);
  for (int round = 0; round < 20; ++round) {
    Tensor w = leaf_on(kGpu, 2);
    synchronize(kGpu);
    Tensor y;
    {
      const StreamGuard guard(side);
      y = w * 3.0;
    }
    Tensor z;
    {
      current_stream(kGpu).wait_for(side);
      z = late(y, false) * 2.0;
    }
    backward(z);
    // Whoever gets blocks of that size now must not spoil what backward still reads or has made.
    std::vector<Tensor> taken;
    for (const StreamView stream : {side.view(), StreamView(kGpu)}) {
      const StreamGuard guard(stream);
      for (int i = 0; i < 20; ++i) taken.push_back(full({kElements}, -1e9, {DType::float64, kGpu}));
    }
    EXPECT_EQ(numbers(w.grad() + 0.0), all(6));
  }
}

}  // namespace
}  // namespace ddp
