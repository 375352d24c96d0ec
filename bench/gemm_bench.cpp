#include <benchmark/benchmark.h>

#include "bench_support.h"
#include "tensor/gemm.h"

/// Matrix products of the bundled models at batch 64: forward, gradient for the weight, gradient for the input.
namespace ddp::bench {
namespace {

double flops(std::int64_t batch, std::int64_t in, std::int64_t out) {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(in) * static_cast<double>(out);
}

void linear(benchmark::State& state) {
  const std::int64_t in = state.range(0);
  const std::int64_t out = state.range(1);
  const Tensor x = rand({64, in});
  const Tensor weight = rand({out, in});
  const Tensor bias = rand({out});
  measure(state, flops(64, in, out), [&] { return raw::linear(x, weight, bias, true); });
}

void linear_weight_grad(benchmark::State& state) {
  const std::int64_t in = state.range(0);
  const std::int64_t out = state.range(1);
  const Tensor x = rand({64, in});
  const Tensor grad = rand({64, out});
  const Tensor place = empty({out, in});
  measure(state, flops(64, in, out), [&] { return raw::linear_weight_grad(grad, x, place); });
}

void linear_input_grad(benchmark::State& state) {
  const std::int64_t in = state.range(0);
  const std::int64_t out = state.range(1);
  const Tensor grad = rand({64, out});
  const Tensor weight = rand({out, in});
  measure(state, flops(64, in, out), [&] { return raw::matmul(grad, weight); });
}

void layers(benchmark::internal::Benchmark* benchmark) {
  for (const auto& [in, out] :
       {std::pair{784, 1024}, std::pair{1024, 1024}, std::pair{1024, 10}, std::pair{9216, 128}, std::pair{128, 10}}) {
    benchmark->Args({in, out});
  }
}
BENCHMARK(linear)->Apply(layers);
BENCHMARK(linear_weight_grad)->Apply(layers);
BENCHMARK(linear_input_grad)->Apply(layers);

}  // namespace
}  // namespace ddp::bench
