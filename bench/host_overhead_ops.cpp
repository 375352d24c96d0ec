#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/core/stream.h"
#include "ddp/tensor/random.h"
#include "host_overhead.h"

/// Operations one at a time, and what each of them is made of.
namespace ddp::bench {
namespace {

constexpr std::int64_t kSize = 4;

/// The operands of all operations; `record` makes them leaves to be trained.
struct Operands {
  Operands(Device device, bool record) {
    const TensorOptions options{.device = device};
    x = rand({kSize, kSize}, options);
    weight = rand({kSize, kSize}, options);
    bias = rand({kSize}, options);
    target = zeros({kSize}, {DType::int64, device});
    for (Tensor* tensor : {&x, &weight, &bias}) tensor->set_requires_grad(record);
  }
  Tensor x, weight, bias, target;
};

struct Op {
  const char* name;
  Tensor (*run)(const Operands&);
};

constexpr Op kOps[] = {
    {"add", [](const Operands& o) { return add(o.x, o.weight); }},
    {"relu", [](const Operands& o) { return relu(o.x); }},
    {"linear", [](const Operands& o) { return linear(o.x, o.weight, o.bias); }},
    {"matmul", [](const Operands& o) { return matmul(o.x, o.weight); }},
    {"cross_entropy", [](const Operands& o) { return cross_entropy(o.x, o.target); }},
};

/// The result dies within the time: that is part of an operation's price.
void forward(benchmark::State& state, Device device, const Op& op, bool record) {
  const Operands operands(device, record);
  measure_host(state, device, [&] { benchmark::DoNotOptimize(op.run(operands)); });
}

/// Backward of `op` alone, with the gradient given, into leaves that have their memory.
void backward(benchmark::State& state, Device device, const Op& op) {
  const Operands operands(device, true);
  Tensor y;
  Tensor grad;
  measure_host(
      state, device, 1, 1,
      [&] {
        y = op.run(operands);
        if (!grad.defined()) grad = ones(y.sizes(), y.options());
        for (Tensor leaf : {operands.x, operands.weight, operands.bias}) leaf.zero_grad();
      },
      [&] { y.backward(grad); }, nothing);
}

Tensor chain_of(const Tensor& x, int nodes) {
  Tensor y = x;
  for (int i = 0; i < nodes; ++i) y = add(y, 0.0);
  return y;
}

/// A chain of nodes that hand their gradient on untouched: the engine's own price of a node.
void chain(benchmark::State& state, Device device) {
  constexpr int kNodes = 64;
  const Tensor x = rand({kSize}, {.device = device}).set_requires_grad();
  const Tensor grad = ones({kSize}, {.device = device});
  Tensor y;
  measure_host(
      state, device, 1, kNodes,
      [&] {
        Tensor(x).zero_grad();
        y = chain_of(x, kNodes);
      },
      [&] { y.backward(grad); }, nothing);
}

/// The end of such a chain's graph.
void release(benchmark::State& state, Device device) {
  constexpr int kNodes = 64;
  const Tensor x = rand({kSize}, {.device = device}).set_requires_grad();
  Tensor y;
  measure_host(state, device, 1, kNodes, [&] { y = chain_of(x, kNodes); }, [&] { y = Tensor(); }, nothing);
}

void tensor_life(benchmark::State& state, Device device) {
  measure_host(state, device, [&] { benchmark::DoNotOptimize(empty({kSize, kSize}, {.device = device})); });
}

void view_life(benchmark::State& state, Device device) {
  const Tensor x = rand({kSize, kSize}, {.device = device});
  measure_host(state, device, [&] { benchmark::DoNotOptimize(x.detach()); });
}

void stream_guard(benchmark::State& state, Device device) {
  const Stream stream(device);
  measure_host(state, device, [&] { const StreamGuard guard(stream); });
}

void read_current_stream(benchmark::State& state, Device device) {
  measure_host(state, device, [&] { benchmark::DoNotOptimize(current_stream(device)); });
}

void event_record(benchmark::State& state, Device device) {
  const StreamView stream = current_stream(device);
  Event event(device);
  measure_host(state, device, [&] { event.record(stream); });
}

void event_wait(benchmark::State& state, Device device) {
  const Stream other(device);
  Event event(device);
  event.record(current_stream(device));
  measure_host(state, device, [&] { other.view().wait(event); });
}

void no_grad(benchmark::State& state, Device device) {
  measure_host(state, device, [&] { const NoGradGuard guard; });
}

}  // namespace

void add_op_benchmarks(Device device) {
  for (const Op& op : kOps) {
    const std::string name = op.name;
    add_host_benchmark(name, device, [op](auto& state, Device on) { forward(state, on, op, false); });
    add_host_benchmark(name + "_recorded", device, [op](auto& state, Device on) { forward(state, on, op, true); });
    add_host_benchmark(name + "_backward", device, [op](auto& state, Device on) { backward(state, on, op); });
  }
  add_host_benchmark("backward_node", device, chain);
  add_host_benchmark("release_node", device, release);
  add_host_benchmark("tensor", device, tensor_life);
  add_host_benchmark("view", device, view_life);
  add_host_benchmark("stream_guard", device, stream_guard);
  add_host_benchmark("current_stream", device, read_current_stream);
  add_host_benchmark("event_record", device, event_record);
  add_host_benchmark("event_wait", device, event_wait);
  add_host_benchmark("no_grad_guard", device, no_grad);
}

}  // namespace ddp::bench
