// Eigen's matrix products of the same sizes as gemm_bench's, the measure our own are held against. Compiled
// with the flags of src/tensor/cpu.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <cstdint>

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void count(benchmark::State& state) {
  state.counters["rate"] = benchmark::Counter(2.0 * 64 * static_cast<double>(state.range(0) * state.range(1)),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void linear(benchmark::State& state) {
  const Matrix x = Matrix::Random(64, state.range(0));
  const Matrix weight = Matrix::Random(state.range(1), state.range(0));
  Matrix y(64, state.range(1));
  for (auto _ : state) {
    y.noalias() = x * weight.transpose();
    benchmark::DoNotOptimize(y.data());
  }
  count(state);
}

void linear_weight_grad(benchmark::State& state) {
  const Matrix x = Matrix::Random(64, state.range(0));
  const Matrix grad = Matrix::Random(64, state.range(1));
  Matrix result(state.range(1), state.range(0));
  for (auto _ : state) {
    result.noalias() = grad.transpose() * x;
    benchmark::DoNotOptimize(result.data());
  }
  count(state);
}

void linear_input_grad(benchmark::State& state) {
  const Matrix grad = Matrix::Random(64, state.range(1));
  const Matrix weight = Matrix::Random(state.range(1), state.range(0));
  Matrix result(64, state.range(0));
  for (auto _ : state) {
    result.noalias() = grad * weight;
    benchmark::DoNotOptimize(result.data());
  }
  count(state);
}

void layers(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({784, 1024})->Args({1024, 1024})->Args({1024, 10})->Args({9216, 128})->Args({128, 10});
}
BENCHMARK(linear)->Apply(layers);
BENCHMARK(linear_weight_grad)->Apply(layers);
BENCHMARK(linear_input_grad)->Apply(layers);

}  // namespace
