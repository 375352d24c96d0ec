#include <memory>

#include "ddp/autograd/functions.h"
#include "ddp/comm/process_group.h"
#include "ddp/nn/nn.h"
#include "ddp/optim/optim.h"
#include "ddp/parallel/distributed_data_parallel.h"
#include "ddp/tensor/random.h"
#include "host_overhead.h"

/// What a training step is made of, and a whole one.
namespace ddp::bench {
namespace {

constexpr std::int64_t kSize = 4;
constexpr int kParameters = 32;

std::vector<Tensor> trained_leaves(Device device) {
  std::vector<Tensor> leaves;
  for (int i = 0; i < kParameters; ++i) {
    leaves.push_back(rand({kSize, kSize}, {.device = device}).set_requires_grad());
    leaves.back().set_grad(rand({kSize, kSize}, {.device = device}));
  }
  return leaves;
}

void zero_grad(benchmark::State& state, Device device) {
  optim::SGD optimizer(trained_leaves(device));
  measure_host(state, device, [&] { optimizer.zero_grad(); }, kParameters);
}

template <class Optimizer, class Options>
void update(benchmark::State& state, Device device, const Options& options) {
  Optimizer optimizer(trained_leaves(device), options);
  measure_host(state, device, [&] { optimizer.step(); }, kParameters);
}

/// Small layers one behind the other; as many parameters as above.
std::shared_ptr<nn::Sequential> tower(Device device) {
  auto net = std::make_shared<nn::Sequential>();
  for (int i = 0; i < kParameters / 2; ++i) net->push_back(std::make_shared<nn::Linear>(kSize, kSize));
  net->to(device);
  return net;
}

std::shared_ptr<comm::ProcessGroup> alone(Device device) { return comm::init_local_groups({device}).front(); }

template <class Model>
void model_forward(benchmark::State& state, Device device, Model& model) {
  const Tensor x = rand({kSize, kSize}, {.device = device});
  measure_host(state, device, 4, kParameters, nothing, [&] { benchmark::DoNotOptimize(model(x)); }, nothing);
}

template <class Model>
void model_backward(benchmark::State& state, Device device, Model& model) {
  const Tensor x = rand({kSize, kSize}, {.device = device});
  const Tensor grad = ones({kSize, kSize}, {.device = device});
  Tensor y;
  measure_host(
      state, device, 1, kParameters,
      [&] {
        model.zero_grad();
        y = model(x);
      },
      [&] { y.backward(grad); }, nothing);
}

/// The smaller example model with the sizes given: forward, loss, backward, update.
template <class Model>
void whole_step(benchmark::State& state, Device device, Model& model, std::int64_t batch, std::int64_t features) {
  const Tensor x = rand({batch, features}, {.device = device});
  const Tensor target = zeros({batch}, {DType::int64, device});
  optim::SGD optimizer(model.parameters(), {.lr = 1e-3, .momentum = 0.9});
  measure_host(
      state, device, 4, 1, nothing,
      [&] {
        optimizer.zero_grad();
        cross_entropy(model(x), target).backward();
        optimizer.step();
      },
      nothing);
}

std::shared_ptr<nn::Sequential> mlp(Device device, std::int64_t features, std::int64_t hidden, std::int64_t classes) {
  auto net =
      std::make_shared<nn::Sequential>(std::make_shared<nn::Linear>(features, hidden), std::make_shared<nn::ReLU>(),
                                       std::make_shared<nn::Linear>(hidden, hidden), std::make_shared<nn::ReLU>(),
                                       std::make_shared<nn::Linear>(hidden, classes));
  net->to(device);
  return net;
}

void add_models(Device device) {
  add_host_benchmark("module_forward", device, [](auto& state, Device on) {
    const auto net = tower(on);
    model_forward(state, on, *net);
  });
  add_host_benchmark("module_backward", device, [](auto& state, Device on) {
    const auto net = tower(on);
    model_backward(state, on, *net);
  });
  add_host_benchmark("ddp_forward", device, [](auto& state, Device on) {
    parallel::DistributedDataParallel model(tower(on), alone(on));
    model_forward(state, on, model);
  });
  add_host_benchmark("ddp_backward", device, [](auto& state, Device on) {
    parallel::DistributedDataParallel model(tower(on), alone(on));
    model_backward(state, on, model);
  });
  add_host_benchmark("mlp_step_tiny", device, [](auto& state, Device on) {
    const auto net = mlp(on, 4, 4, 4);
    whole_step(state, on, *net, 4, 4);
  });
  add_host_benchmark("mlp_step_tiny_ddp", device, [](auto& state, Device on) {
    parallel::DistributedDataParallel model(mlp(on, 4, 4, 4), alone(on));
    whole_step(state, on, model, 4, 4);
  });
  if (device.is_cpu()) return;  // there the products are nearly all of it
  add_host_benchmark("mlp_step", device, [](auto& state, Device on) {
    const auto net = mlp(on, 784, 1024, 10);
    whole_step(state, on, *net, 64, 784);
  });
  add_host_benchmark("mlp_step_ddp", device, [](auto& state, Device on) {
    parallel::DistributedDataParallel model(mlp(on, 784, 1024, 10), alone(on));
    whole_step(state, on, model, 64, 784);
  });
}

}  // namespace

void add_step_benchmarks(Device device) {
  add_host_benchmark("zero_grad", device, zero_grad);
  add_host_benchmark("sgd_step", device, [](auto& state, Device on) {
    update<optim::SGD>(state, on, optim::SGDOptions{.lr = 1e-3, .momentum = 0.9});
  });
  add_host_benchmark("adam_step", device,
                     [](auto& state, Device on) { update<optim::Adam>(state, on, optim::AdamOptions{}); });
  add_models(device);
}

}  // namespace ddp::bench
