#include "launch/binding.h"

namespace ddp::launch {

std::vector<std::vector<int>> group_by_core(const std::vector<int>& cpus) {
  std::vector<std::vector<int>> cores;
  for (const int cpu : cpus) cores.push_back({cpu});
  return cores;
}

}  // namespace ddp::launch
