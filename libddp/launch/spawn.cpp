#include "launch/spawn.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <random>

#include "ddp/comm/store.h"
#include "ddp/core/device.h"
#include "launch/binding.h"
#include "launch/gpu_sharing.h"
#include "launch/supervisor.h"

extern char** environ;

namespace ddp::launch {
namespace {

std::string trim(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

void check(const SpawnOptions& options) {
  DDP_CHECK(options.nproc >= 1 && options.nproc <= kMaxRanks, InvalidArgument, "number of ranks is ", options.nproc,
            "; allowed: 1 to ", kMaxRanks);
  DDP_CHECK(!options.command.empty() && !options.command.front().empty(), InvalidArgument, "no program given");
  DDP_CHECK(options.master_port >= 0 && options.master_port <= 65535, InvalidArgument, "MASTER_PORT is ",
            options.master_port, "; allowed: 1 to 65535, or 0 for a free one");
  const std::string address = trim(options.master_addr);
  DDP_CHECK(!address.empty() && address.find_first_of(" \t\r\n") == std::string::npos, InvalidArgument,
            "MASTER_ADDR is '", options.master_addr, "'; allowed: a host name or an IP address");
  DDP_CHECK(options.grace.count() >= 0 && options.settle.count() >= 0 && options.time_limit.count() >= 0,
            InvalidArgument, "times must not be negative: grace ", options.grace.count(), " ms, settle ",
            options.settle.count(), " ms, time limit ", options.time_limit.count(), " ms");
}

Environment own_environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

// Tells this run from others that may meet it, e.g. in a file left over.
std::string make_run_id() {
  std::random_device random;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (int i = 0; i < 16; ++i) id += kDigits[random() % 16];
  return id;
}

std::vector<std::string> as_strings(const Environment& environment) {
  std::vector<std::string> result;
  for (const auto& [name, value] : environment) result.push_back(concat(name, "=", value));
  return result;
}

}  // namespace

RunResult spawn(const SpawnOptions& options) {
  check(options);
  const std::string program = find_program(options.command.front());
  const std::string address = trim(options.master_addr);

  // Before any thread is made, the store's among them: threads inherit what is blocked.
  SignalInbox signals(options.forward_signals);
  const comm::TCPStoreServer store(address, static_cast<std::uint16_t>(options.master_port));

  Environment environment = own_environment();
  const auto threads = environment.find("OMP_NUM_THREADS");
  const Placement placement = place_ranks(
      options.nproc, usable_cores(), options.bind,
      threads != environment.end() && !threads->second.empty() ? std::optional(threads->second) : std::nullopt);
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(options.nproc);
  environment["MASTER_ADDR"] = address;
  environment["MASTER_PORT"] = std::to_string(store.port());
  environment["DDP_STORE_EXTERNAL"] = std::to_string(1);  // g++ 12 has a false warning about a literal here
  environment["DDP_RUN_ID"] = make_run_id();
  if (placement.set_threads) environment["OMP_NUM_THREADS"] = std::to_string(placement.threads);

  // Outlives the supervisor, and so the ranks.
  std::optional<GpuSharing> sharing;
  if (options.share_gpu) sharing = share_gpus(options.nproc, device_count(DeviceType::cuda));

  Supervisor supervisor(options, signals);
  supervisor.note(placement.text);
  if (sharing) supervisor.note(sharing->text);
  for (int rank = 0; rank < options.nproc; ++rank) {
    Environment own = environment;
    own["RANK"] = own["LOCAL_RANK"] = std::to_string(rank);
    if (sharing) sharing->add_to(own, rank);
    if (options.adjust_environment) options.adjust_environment(rank, own);
    ChildPlan plan;
    plan.rank = rank;
    plan.program = program;
    plan.arguments = options.command;
    plan.environment = as_strings(own);
    plan.cpus = placement.cpus[static_cast<std::size_t>(rank)];
    plan.signal_mask = signals.previous_mask();
    supervisor.start(plan);
  }
  return supervisor.run();
}

}  // namespace ddp::launch
