#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

/// The logical CPUs of each core that this process may use, neighbours (socket, NUMA node) side by side.
std::vector<std::vector<int>> usable_cores();

/// Which CPUs and how many threads each rank gets.
struct Placement {
  std::vector<std::vector<int>> cpus;  ///< by rank; empty: not bound
  int threads = 1;                     ///< of every rank
  bool set_threads = true;             ///< false: the user has set OMP_NUM_THREADS
  std::string text;                    ///< says what was done
};

/// Contiguous shares that differ by one core at most; all ranks get as many threads as the smallest share has
/// cores, since the slowest rank sets the pace. More ranks than cores: no binding, one thread each.
Placement place_ranks(int ranks, const std::vector<std::vector<int>>& cores, bool bind,
                      const std::optional<std::string>& omp_num_threads);

/// `cpus` by core in order of nearness; every CPU its own core where the topology is not known.
std::vector<std::vector<int>> group_by_core(const std::vector<int>& cpus);

}  // namespace ddp::launch
