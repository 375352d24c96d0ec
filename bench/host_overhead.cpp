// What the host pays: nanoseconds and heap allocations of an operation, forward, backward and update, on tensors so
// small that the work itself is next to nothing. On a GPU the launches are part of it, the kernels' own time is not.
#include "host_overhead.h"

#include "ddp/tensor/tensor.h"
#include "support/heap_count.h"

namespace ddp::bench {

std::int64_t heap_allocations() { return test::heap_allocations().load(std::memory_order_relaxed); }

}  // namespace ddp::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  std::vector<ddp::Device> devices = {ddp::Device::cpu()};
  if (ddp::device_count(ddp::DeviceType::cuda) > 0) devices.push_back(ddp::Device::cuda());
  for (const ddp::Device device : devices) {
    ddp::bench::add_op_benchmarks(device);
    ddp::bench::add_step_benchmarks(device);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
