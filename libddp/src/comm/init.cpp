#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "comm/gloo/make_group.h"
#include "comm/launch_env.h"
#include "comm/nccl/make_group.h"
#include "comm/rendezvous.h"
#include "comm/store/socket.h"
#include "comm/store/store_checks.h"
#include "core/env.h"
#include "core/observer.h"
#include "ddp/comm/process_group.h"

namespace ddp::comm {
namespace {

struct Place {
  int rank = 0;
  int size = 1;
};

Place find_place(const InitOptions& options, const LaunchEnv& env) {
  const auto rank = options.rank ? options.rank : env.rank;
  const auto size = options.size ? options.size : env.size;
  constexpr std::string_view kHelp =
      " is not set; start the program with `ddp run -n N -- PROGRAM` (or torchrun, mpirun, srun)";
  DDP_CHECK(rank, InvalidArgument, env.rank_name, kHelp);
  DDP_CHECK(size, InvalidArgument, env.size_name, kHelp);
  DDP_CHECK(*size >= 1, InvalidArgument, env.size_name, " is ", *size, "; at least 1 rank is needed");
  DDP_CHECK(*rank >= 0 && *rank < *size, InvalidArgument, env.rank_name, " is ", *rank, "; with ", env.size_name, " ",
            *size, " the allowed ranks are 0 to ", *size - 1);
  return {.rank = *rank, .size = *size};
}

/// Set by the launcher: ranks may be more than GPUs, and take them in turn.
bool ranks_share_gpus() { return core::env_int("DDP_SHARE_GPU", 0, 1).value_or(0) == 1; }

std::string find_backend(const InitOptions& options, const LaunchEnv& env) {
  constexpr std::array<std::string_view, 2> kBackends{"gloo", "nccl"};
  if (!options.backend.empty()) {
    DDP_CHECK(std::ranges::find(kBackends, options.backend) != kBackends.end(), InvalidArgument, "backend '",
              options.backend, "' is not known; allowed: gloo, nccl");
    return options.backend;
  }
  if (options.device) return options.device->is_cuda() ? "nccl" : "gloo";
  const int gpus = device_count(DeviceType::cuda);
  const bool enough = gpus >= env.local_size.value_or(1) || (gpus > 0 && ranks_share_gpus());
  return nccl_is_built() && enough ? "nccl" : "gloo";
}

Device find_device(const InitOptions& options, const std::string& backend, const LaunchEnv& env) {
  const bool nccl = backend == "nccl";
  Device chosen = Device::cpu();
  if (nccl && !options.device) {
    const int gpus = device_count(DeviceType::cuda);
    const int local_rank = env.local_rank.value_or(0);
    DDP_CHECK(gpus > 0, NotAvailable,
              "backend nccl: there is no GPU that CUDA can use; backend gloo works on CPU devices");
    DDP_CHECK(local_rank < gpus || ranks_share_gpus(), InvalidArgument, "LOCAL_RANK is ", local_rank, ", but there ",
              gpus == 1 ? "is " : "are ", gpus, gpus == 1 ? " GPU" : " GPUs",
              "; start one rank for each GPU, or let them share: ddp run --share-gpu");
    chosen = Device::cuda(local_rank % gpus);
  }
  const Device device = options.device.value_or(chosen);
  DDP_CHECK(device.is_cuda() == nccl, InvalidArgument, "backend ", backend, " does not work on device ", device,
            nccl ? "; it needs a cuda device" : "; it needs a cpu device");
  return device;
}

/// A server and a client of it, ended in the right order.
struct ServedStore {
  std::shared_ptr<TCPStoreServer> server;
  std::unique_ptr<TCPStore> client;
};

/// This process's servers: a second group made while a first is held meets at the same port, in the first's server.
std::shared_ptr<TCPStoreServer> serve(const MasterAddress& master) {
  static std::mutex mutex;
  static std::map<std::uint16_t, std::weak_ptr<TCPStoreServer>> servers;
  const std::lock_guard lock(mutex);
  auto& slot = servers[master.port];
  auto server = slot.lock();
  if (!server) {
    server = std::make_shared<TCPStoreServer>(master.host, master.port);
    slot = server;
  }
  return server;
}

std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()),
                  std::chrono::milliseconds(1));
}

/// The default store: at MASTER_ADDR:MASTER_PORT, served by rank 0 unless a launcher does. Under torchrun, whose
/// agent listens at MASTER_PORT in a protocol of its own, ours is kTorchrunOffset ports further.
std::shared_ptr<Store> default_store(const MasterAddress& master, int rank, Clock::time_point deadline,
                                     std::source_location where) {
  const auto held = std::make_shared<ServedStore>();
  if (rank == 0 && !store_is_external()) held->server = serve(master);
  try {
    held->client = std::make_unique<TCPStore>(master.host, master.port, until(deadline), where);
  } catch (const TimeoutError& error) {
    ddp::detail::fail<TimeoutError>(
        "rank ", rank, ": ", error.what(),
        store_is_external() ? " (the launcher should serve it)" : " (rank 0 should serve it; it is missing)");
  }
  return {held, held->client.get()};
}

std::uint16_t served_port(std::uint16_t port) {
  constexpr int kTorchrunOffset = 17;
  if (!port_is_torchruns()) return port;
  return static_cast<std::uint16_t>(port + kTorchrunOffset <= 65535 ? port + kTorchrunOffset : port - kTorchrunOffset);
}

/// With the default store a connection may be to the server of an earlier group that is just going away: then once
/// more from the start, within the deadline.
Meeting meet_at_master(const MasterAddress& master, const Place& place, const InitOptions& options,
                       Clock::time_point deadline, std::source_location where) {
  while (true) {
    const auto store = default_store(master, place.rank, deadline, where);
    try {
      return meet(std::make_shared<PrefixStore>(concat("ddp/", run_id(), "/"), store), place.rank, place.size,
                  options.timeout, deadline, where);
    } catch (const StoreGone&) {
      if (place.rank == 0 || Clock::now() >= deadline) throw;
    }
  }
}

}  // namespace

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options, std::source_location where) {
  const LaunchEnv env = read_launch_env();
  const Place place = find_place(options, env);
  DDP_CHECK(options.timeout.count() > 0, InvalidArgument, "init_process_group: time-out of ", options.timeout.count(),
            " ms; it must be positive");
  const std::string backend = find_backend(options, env);
  DDP_CHECK(backend != "nccl" || nccl_is_built(), NotAvailable,
            "backend nccl: this build has no NCCL (configure with -DDDP_WITH_CUDA=ON -DDDP_WITH_NCCL=ON)");
  const Device device = find_device(options, backend, env);

  const core::BlockingScope scope("comm::init_process_group", device, where);
  const auto deadline = deadline_after(options.timeout);
  Meeting meeting;
  std::string address = "127.0.0.1";
  std::shared_ptr<Store> own_store = options.store;
  // Alone, nobody needs an address.
  if (!own_store && place.size == 1 && !core::env_string("MASTER_PORT")) own_store = std::make_shared<HashStore>();
  if (own_store) {
    meeting = meet(std::make_shared<PrefixStore>("ddp/", own_store), place.rank, place.size, options.timeout, deadline,
                   where);
    const bool one_host =
        std::ranges::all_of(meeting.hosts, [&](const std::string& host) { return host == meeting.hosts.front(); });
    // Somewhere among the other hosts is a route to all of them.
    const auto other = std::ranges::find_if(meeting.hosts, [](const auto& host) { return host != host_name(); });
    if (!one_host) address = source_address_towards(*other, 1, deadline);
  } else {
    MasterAddress master = read_master_address(env, place.size);
    master.port = served_port(master.port);
    meeting = meet_at_master(master, place, options, deadline, where);
    // The interface over which the store was reached is one that the other ranks can reach.
    address = source_address_towards(master.host, master.port, deadline);
  }
  const bool serves_store = !own_store && place.rank == 0 && !store_is_external();
  if (backend == "nccl") {
    return make_nccl_group({.rank = place.rank,
                            .size = place.size,
                            .device = device,
                            .store = meeting.store,
                            .timeout = options.timeout,
                            .serves_store = serves_store,
                            .check_collectives = options.check_collectives},
                           where);
  }
  return make_gloo_group(
      {.rank = place.rank,
       .size = place.size,
       .device = device,
       .store = meeting.store,
       .timeout = options.timeout,
       .address = address,
       .interface = core::env_string("GLOO_SOCKET_IFNAME").value_or(""),
       .serves_store = serves_store,
       .check_collectives = options.check_collectives,
       .shared_memory = options.shared_memory && core::env_int("DDP_SHARED_MEMORY", 0, 1).value_or(1) == 1},
      where);
}

}  // namespace ddp::comm
