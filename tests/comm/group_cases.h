#pragma once

#include <string>
#include <vector>

#include "comm/process_group_conformance.h"

namespace ddp::test {

/// The backends of this build, each with 1 to 4 ranks.
inline std::vector<GroupCase> group_cases() {
  std::vector<GroupCase> cases;
  std::vector<std::string> backends{"local"};
#if DDP_TEST_GLOO
  backends.push_back("gloo");
#endif
  for (const auto& backend : backends) {
    for (int size = 1; size <= 4; ++size) cases.push_back({backend, size});
  }
  return cases;
}

inline std::string group_case_name(const ::testing::TestParamInfo<GroupCase>& info) {
  return info.param.backend + std::to_string(info.param.size);
}

}  // namespace ddp::test
