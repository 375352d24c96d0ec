#include "launch/binding.h"

#include <sched.h>

#include <algorithm>
#include <memory>

#include "ddp/core/error.h"

namespace ddp::launch {
namespace {

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

// Empty when the kernel does not say.
std::vector<int> allowed_cpus() {
  constexpr std::size_t kMaxCpus = 8192;  // cpu_set_t itself ends at 1024
  const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(kMaxCpus));
  const std::size_t size = CPU_ALLOC_SIZE(kMaxCpus);
  std::vector<int> result;
  if (!set) return result;
  CPU_ZERO_S(size, set.get());
  if (::sched_getaffinity(0, size, set.get()) != 0) return result;
  for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, size, set.get())) result.push_back(static_cast<int>(cpu));
  }
  return result;
}

std::string number_of(std::size_t count, const char* noun) { return concat(count, " ", noun, count == 1 ? "" : "s"); }

}  // namespace

std::vector<std::vector<int>> usable_cores() { return group_by_core(allowed_cpus()); }

Placement place_ranks(int ranks, const std::vector<std::vector<int>>& cores, bool bind,
                      const std::optional<std::string>& omp_num_threads) {
  const auto count = static_cast<std::size_t>(ranks);
  Placement placement;
  placement.threads = static_cast<int>(std::max<std::size_t>(1, cores.size() / count));
  placement.set_threads = !omp_num_threads.has_value();
  placement.cpus.resize(count);

  const std::string threads =
      placement.set_threads
          ? concat(number_of(static_cast<std::size_t>(placement.threads), "thread"), ranks > 1 ? " each" : "")
          : concat("OMP_NUM_THREADS=", *omp_num_threads, " kept");
  const std::string where = concat(number_of(count, "rank"), " on ", number_of(cores.size(), "core"), ": ");
  if (!bind || count > cores.size()) {
    placement.text = concat(where, "not bound", bind ? "" : " (--no-bind)", ", ", threads);
    return placement;
  }
  for (std::size_t rank = 0; rank < count; ++rank) {
    for (std::size_t core = rank * cores.size() / count; core < (rank + 1) * cores.size() / count; ++core) {
      placement.cpus[rank].insert(placement.cpus[rank].end(), cores[core].begin(), cores[core].end());
    }
  }
  const std::size_t share = cores.size() / count;
  const std::string shares =
      cores.size() % count == 0 ? number_of(share, "core") : concat(share, " or ", number_of(share + 1, "core"));
  placement.text = concat(where, shares, placement.set_threads ? " and " : ", ", threads);
  return placement;
}

}  // namespace ddp::launch
