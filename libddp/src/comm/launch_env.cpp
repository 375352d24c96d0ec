#include "comm/launch_env.h"

#include <algorithm>
#include <array>
#include <functional>

#include "comm/store/socket.h"
#include "core/env.h"
#include "ddp/core/error.h"

namespace ddp::comm {
namespace {

constexpr int kMostRanks = 1 << 20;

struct Family {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr std::array<Family, 4> kFamilies{{
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
}};

std::optional<int> read(const char* name, int low) {
  const auto value = core::env_int(name, low, kMostRanks);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

std::optional<std::string> first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = core::env_string(name); value && !value->empty()) return value;
  }
  return std::nullopt;
}

}  // namespace

LaunchEnv read_launch_env() {
  const auto present =
      std::ranges::find_if(kFamilies, [](const Family& f) { return core::env_string(f.rank).has_value(); });
  const Family& family = present == kFamilies.end() ? kFamilies.front() : *present;
  return {.rank = read(family.rank, 0),
          .size = read(family.size, 1),
          .rank_name = family.rank,
          .size_name = family.size,
          .local_rank = read(family.local_rank, 0),
          .local_size = read(family.local_size, 1)};
}

MasterAddress read_master_address(const LaunchEnv& env, int size) {
  MasterAddress master;
  const bool one_host = size == 1 || env.local_size == size;
  const auto address = core::env_string("MASTER_ADDR");
  const auto port = core::env_string("MASTER_PORT");
  // The port first: it needs no look-up, so a wrong one is found before any call to the network.
  if (port) {
    master.port = static_cast<std::uint16_t>(core::parse_int("MASTER_PORT", *port, 1, 65535));
  } else {
    const auto job = first_set({"SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"});
    DDP_CHECK(job, InvalidArgument, "MASTER_PORT is not set; start the program with `ddp run -n ", size,
              " -- PROGRAM`, or set it to a free port (1 to 65535) that is the same for all ranks");
    constexpr std::size_t kFirst = 20'000;
    constexpr std::size_t kCount = 10'000;
    master.port = static_cast<std::uint16_t>(kFirst + std::hash<std::string>{}(*job) % kCount);
  }
  if (address) {
    master.host = checked_host(*address);
  } else {
    DDP_CHECK(one_host, InvalidArgument,
              "MASTER_ADDR is not set; it must be the host name or address of rank 0, the same for all ranks");
    master.host = "127.0.0.1";
  }
  return master;
}

std::string run_id() {
  std::string id;
  for (const char* name : {"DDP_RUN_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID",
                           "SLURM_STEP_ID", "PMIX_NAMESPACE"}) {
    if (const auto value = core::env_string(name)) id += concat(id.empty() ? "" : ".", *value);
  }
  return id;
}

bool store_is_external() { return core::env_string("DDP_STORE_EXTERNAL") == "1"; }

bool port_is_torchruns() { return core::env_string("TORCHELASTIC_USE_AGENT_STORE") == "True"; }

}  // namespace ddp::comm
