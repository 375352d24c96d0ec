// A rank on a GPU: adds up rank + 1 over all ranks.
#include <ddp/ddp.h>

#include <cstdio>
#include <exception>

int main() {
  try {
    const auto group = ddp::comm::init_process_group({.backend = "nccl", .timeout = std::chrono::seconds(60)});
    const ddp::Tensor number = ddp::full({1}, group->rank() + 1, {ddp::DType::int64, group->device()});
    group->all_reduce(number).wait();
    std::printf("%s sum %lld\n", group->backend().c_str(), static_cast<long long>(number.item<std::int64_t>()));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
