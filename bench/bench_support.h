#pragma once

#include <benchmark/benchmark.h>

#include "ddp/tensor/random.h"
#include "ddp/tensor/tensor.h"

namespace ddp::bench {

/// Times `run` on one thread and reports the rate of `work` operations a call (flop/s, or elements/s).
template <class F>
void measure(benchmark::State& state, double work, F&& run) {
  set_num_threads(1);
  for (auto step : state) {
    static_cast<void>(step);
    auto result = run();
    benchmark::DoNotOptimize(result);
  }
  state.counters["rate"] =
      benchmark::Counter(work, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

}  // namespace ddp::bench
