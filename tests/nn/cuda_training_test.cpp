// Whole training steps on a GPU: between forward and optimiser step the host waits for nothing, and after some steps
// nothing more is asked of the system.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "ddp/ddp.h"
#include "ddp/trace/recorder.h"
#include "tensor/copy.h"

namespace {

using ddp::Device;
using ddp::MemoryStats;
using ddp::Tensor;
using ddp::trace::Counter;

constexpr Device kGpu = Device::cuda(0);

std::shared_ptr<ddp::nn::Sequential> mlp() {
  ddp::manual_seed(3);
  return std::make_shared<ddp::nn::Sequential>(
      std::make_shared<ddp::nn::Flatten>(), std::make_shared<ddp::nn::Linear>(64, 128),
      std::make_shared<ddp::nn::ReLU>(), std::make_shared<ddp::nn::Linear>(128, 10));
}

struct Result {
  std::vector<double> losses;
  std::int64_t blocking = 0;  // calls in the last steps
  std::int64_t system_allocations = 0;
  std::int64_t pinned_system_allocations = 0;
};

Result train(Device device, int warm_up, int steps) {
  auto net = mlp();
  net->to(device);
  ddp::optim::SGD optimizer(net->parameters(), {.lr = 0.1, .momentum = 0.9});
  const ddp::data::SyntheticImages set(64 * (warm_up + steps), {1, 8, 8}, 10, 5);
  const ddp::data::SequentialSampler sampler(set.size());
  ddp::data::DataLoader loader(set, sampler, {.batch_size = 64, .device = device});
  const Tensor losses = ddp::zeros({warm_up + steps}, {ddp::DType::float32, device});
  Result result;
  MemoryStats memory;
  MemoryStats pinned;
  ddp::trace::CounterSnapshot counters;
  int step = 0;
  for (auto [input, target] : loader) {
    // While one batch is held, every place of the loader's ring gets its memory.
    if (step == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (step == warm_up) {
      ddp::synchronize(device);
      memory = ddp::memory_stats(device);
      pinned = ddp::pinned_memory_stats();
      counters = ddp::trace::snapshot();
    }
    optimizer.zero_grad();
    const Tensor loss = ddp::cross_entropy(net->forward(input), target);
    loss.backward();
    optimizer.step();
    ddp::raw::copy_(ddp::raw::slice(losses, 0, step, step + 1, 1), loss.detach());
    ++step;
  }
  result.blocking = (ddp::trace::snapshot() - counters)[Counter::blocking_calls];
  result.system_allocations = ddp::memory_stats(device).system_allocations - memory.system_allocations;
  result.pinned_system_allocations = ddp::pinned_memory_stats().system_allocations - pinned.system_allocations;
  result.losses = losses.to_vector<double>();
  return result;
}

TEST(CudaTraining, AStepNeitherBlocksNorAsksTheSystemForMemory) {
  const Result result = train(kGpu, 40, 20);
  ASSERT_EQ(result.losses.size(), 60U);
  EXPECT_EQ(result.blocking, 0);
  EXPECT_EQ(result.system_allocations, 0);
  // Pinned memory is taken for every copy that is under way, so that this number depends on how far the host is ahead.
  EXPECT_LE(result.pinned_system_allocations, 8) << "the copies fell far behind";
}

TEST(CudaTraining, LearnsAsTheCpuDoes) {
  const Result gpu = train(kGpu, 10, 10);
  const Result cpu = train(Device::cpu(), 10, 10);
  ASSERT_EQ(gpu.losses.size(), cpu.losses.size());
  EXPECT_LT(cpu.losses.back(), 0.7 * cpu.losses.front());
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    // float32 sums in another order, through 20 steps of momentum.
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 1e-3 * (1 + std::abs(cpu.losses[i]))) << "step " << i;
  }
}

}  // namespace
