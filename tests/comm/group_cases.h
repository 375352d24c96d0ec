#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "comm/process_group_conformance.h"
#include "support/rank_gpu.h"

namespace ddp::test {

/// The backends of this build, each with 1 to 4 ranks. In the tests of CUDA: the in-process group on one GPU; in a
/// process that is a rank: NCCL with as many ranks as there are.
inline std::vector<GroupCase> group_cases() {
#if DDP_TEST_RANK_PROCESS
  const char* size = std::getenv("WORLD_SIZE");
  return {{"nccl", size != nullptr ? std::atoi(size) : 1, rank_gpu()}};
#elif DDP_TEST_CUDA
  std::vector<GroupCase> cases;
  for (int size = 1; size <= 4; ++size) cases.push_back({"local", size, Device::cuda(0)});
  return cases;
#else
  std::vector<GroupCase> cases;
  std::vector<std::string> backends{"local"};
#if DDP_TEST_GLOO
  backends.push_back("gloo");
#endif
  for (const auto& backend : backends) {
    for (int size = 1; size <= 4; ++size) cases.push_back({backend, size});
  }
  return cases;
#endif
}

/// Fewer, for what takes long: an even and an odd number of ranks for each backend.
inline std::vector<GroupCase> few_group_cases() {
  auto cases = group_cases();
  std::erase_if(cases, [](const GroupCase& one) { return one.size != 2 && one.size != 3; });
  return cases;
}

inline std::string group_case_name(const ::testing::TestParamInfo<GroupCase>& info) {
  return info.param.backend + std::to_string(info.param.size);
}

}  // namespace ddp::test
