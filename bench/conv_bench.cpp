#include <benchmark/benchmark.h>

#include "bench_support.h"
#include "tensor/conv.h"

/// Convolution and pooling of the bundled model at batch 64: 1-32 and 32-64 channels, 3x3, on 28x28 images.
namespace ddp::bench {
namespace {

struct Layer {
  std::int64_t in, out, size;
  double flops() const { return 2.0 * 64 * 9 * static_cast<double>(in * out * (size - 2) * (size - 2)); }
  Dims x() const { return {64, in, size, size}; }
  Dims weight() const { return {out, in, 3, 3}; }
  Dims y() const { return {64, out, size - 2, size - 2}; }
};
Layer layer_of(const benchmark::State& state) { return {state.range(0), state.range(1), state.range(2)}; }

void conv2d(benchmark::State& state) {
  const Layer layer = layer_of(state);
  const Tensor x = rand(layer.x());
  const Tensor weight = rand(layer.weight());
  const Tensor bias = rand({layer.out});
  measure(state, layer.flops(), [&] { return raw::conv2d(x, weight, bias, {}); });
}

void conv2d_input_grad(benchmark::State& state) {
  const Layer layer = layer_of(state);
  const Tensor grad = rand(layer.y());
  const Tensor weight = rand(layer.weight());
  measure(state, layer.flops(), [&] { return raw::conv2d_input_grad(grad, weight, layer.x(), {}); });
}

void conv2d_weight_grad(benchmark::State& state) {
  const Layer layer = layer_of(state);
  const Tensor x = rand(layer.x());
  const Tensor grad = rand(layer.y());
  const Tensor place = empty(layer.weight());
  measure(state, layer.flops(), [&] { return raw::conv2d_weight_grad(grad, x, layer.weight(), {}, place); });
}

void conv2d_bias_grad(benchmark::State& state) {
  const Layer layer = layer_of(state);
  const Tensor grad = rand(layer.y());
  measure(state, static_cast<double>(grad.numel()), [&] { return raw::conv2d_bias_grad(grad); });
}

BENCHMARK(conv2d)->Args({1, 32, 28})->Args({32, 64, 26});
BENCHMARK(conv2d_input_grad)->Args({32, 64, 26});
BENCHMARK(conv2d_weight_grad)->Args({1, 32, 28})->Args({32, 64, 26});
BENCHMARK(conv2d_bias_grad)->Args({1, 32, 28})->Args({32, 64, 26});

const raw::PoolParams kHalving{.kernel = {2, 2}, .stride = {2, 2}};

void max_pool2d(benchmark::State& state) {
  const Tensor x = rand({64, 64, 24, 24});
  measure(state, static_cast<double>(x.numel()), [&] { return raw::max_pool2d(x, kHalving).values; });
}
void max_pool2d_grad(benchmark::State& state) {
  const Tensor x = rand({64, 64, 24, 24});
  const auto y = raw::max_pool2d(x, kHalving);
  measure(state, static_cast<double>(x.numel()),
          [&] { return raw::max_pool2d_grad(y.values, y.indices, x.sizes(), kHalving); });
}
BENCHMARK(max_pool2d);
BENCHMARK(max_pool2d_grad);

}  // namespace
}  // namespace ddp::bench
