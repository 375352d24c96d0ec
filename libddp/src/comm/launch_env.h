#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// What a launcher tells its ranks through environment variables.
namespace ddp::comm {

struct LaunchEnv {
  std::optional<int> rank;
  std::optional<int> size;
  std::string rank_name;  ///< the variable the rank came from, "RANK" when none is set
  std::string size_name;
  std::optional<int> local_rank;
  std::optional<int> local_size;
};

/// torchrun's variables first, then Open MPI's, PMI's and Slurm's; the first family that sets a rank counts.
/// Throws InvalidArgument, naming the variable, for a value that is no number or out of range.
LaunchEnv read_launch_env();

struct MasterAddress {
  std::string host;
  std::uint16_t port = 0;
};

/// MASTER_ADDR and MASTER_PORT. Where all ranks are on this host (by the launcher's local size) the address may be
/// left out, and the port where the launcher gives the job a number. Throws InvalidArgument that names the variable.
MasterAddress read_master_address(const LaunchEnv& env, int size);

/// A name for this run by the launcher, so that runs do not meet in one store; empty when it gives none.
std::string run_id();

/// Somebody else serves the store at MASTER_ADDR:MASTER_PORT.
bool store_is_external();
/// torchrun's agent keeps MASTER_PORT for its own store.
bool port_is_torchruns();

}  // namespace ddp::comm
