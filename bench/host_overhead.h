#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ddp/core/device.h"

namespace ddp::bench {

/// Heap allocations of the program so far (operator new).
std::int64_t heap_allocations();

/// Times what the host spends in `run`, which does `units` things (operations, nodes, parameters) at a call.
///
/// `calls` calls make a batch; between batches, outside the time, the device is drained, so that no call waits for
/// room in the launch queue. `before` and `after` run around each call, outside the time, where they are given; a
/// batch then is one call. Counters: `ns` for one unit, the median over batches; `ns_min`, the least; `heap`, heap
/// allocations for one unit.
template <class Before, class Run, class After>
void measure_host(benchmark::State& state, Device device, int calls, double units, Before before, Run run,
                  After after) {
  using Clock = std::chrono::steady_clock;
  set_num_threads(1);
  for (int i = 0; i < 3; ++i) {  // caches fill
    before();
    for (int call = 0; call < calls; ++call) run();
    after();
  }
  std::vector<double> times;
  times.reserve(1 << 16);
  std::int64_t allocations = 0;
  for (auto step : state) {
    static_cast<void>(step);
    synchronize(device);
    before();
    const std::int64_t allocated = heap_allocations();
    const auto begin = Clock::now();
    for (int call = 0; call < calls; ++call) run();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    allocations += heap_allocations() - allocated;
    after();
    state.SetIterationTime(seconds);
    if (times.size() < times.capacity()) times.push_back(seconds);
  }
  if (times.empty()) return;
  const double batch = units * calls;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  state.counters["ns"] = *middle * 1e9 / batch;
  state.counters["ns_min"] = *std::min_element(times.begin(), times.end()) * 1e9 / batch;
  state.counters["heap"] = static_cast<double>(allocations) / (batch * static_cast<double>(state.iterations()));
}

inline void nothing() {}

/// The same where nothing has to be prepared.
template <class Run>
void measure_host(benchmark::State& state, Device device, Run run, double units = 1) {
  measure_host(state, device, 32, units, nothing, run, nothing);
}

/// Registers NAME/DEVICE. What throws is shown as an error, and the others still run.
template <class Function>
void add_host_benchmark(const std::string& name, Device device, Function function) {
  benchmark::RegisterBenchmark((name + "/" + to_string(device)).c_str(),
                               [function, device](benchmark::State& state) {
                                 try {
                                   function(state, device);
                                 } catch (const std::exception& error) {
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->UseManualTime()
      ->MinTime(0.1);
}

/// Each registers its functions for one device.
void add_op_benchmarks(Device device);
void add_step_benchmarks(Device device);

}  // namespace ddp::bench
