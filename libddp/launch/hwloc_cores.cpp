#include <hwloc.h>

#include <algorithm>

#include "launch/binding.h"

namespace ddp::launch {
namespace {

class Topology {
 public:
  Topology() {
    if (hwloc_topology_init(&topology_) != 0) return;
    initialised_ = true;
    loaded_ = hwloc_topology_load(topology_) == 0;
  }
  ~Topology() {
    if (initialised_) hwloc_topology_destroy(topology_);
  }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  bool loaded() const { return loaded_; }
  hwloc_topology_t get() const { return topology_; }

 private:
  hwloc_topology_t topology_ = nullptr;
  bool initialised_ = false;
  bool loaded_ = false;
};

}  // namespace

std::vector<std::vector<int>> group_by_core(const std::vector<int>& cpus) {
  std::vector<std::vector<int>> cores;
  std::vector<int> left = cpus;
  const Topology topology;
  if (topology.loaded()) {
    hwloc_obj_t previous_core = nullptr;
    // Logical order goes through the tree, so that neighbours come one after the other.
    for (hwloc_obj_t pu = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PU, nullptr); pu != nullptr;
         pu = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PU, pu)) {
      const auto found = std::find(left.begin(), left.end(), static_cast<int>(pu->os_index));
      if (found == left.end()) continue;
      left.erase(found);
      const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology.get(), HWLOC_OBJ_CORE, pu);
      if (core == nullptr || core != previous_core) cores.emplace_back();
      cores.back().push_back(static_cast<int>(pu->os_index));
      previous_core = core;
    }
  }
  for (const int cpu : left) cores.push_back({cpu});  // unknown to hwloc
  return cores;
}

}  // namespace ddp::launch
