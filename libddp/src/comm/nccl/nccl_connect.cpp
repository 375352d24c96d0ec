// How the ranks of a NCCL group come together.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "comm/nccl/nccl_core.h"
#include "comm/rendezvous.h"
#include "core/allocator.h"
#include "core/cuda/check.h"
#include "core/cuda/device_guard.h"
#include "core/device_runtime.h"
#include "core/env.h"
#include "tensor/status_word.h"

namespace ddp::comm {
namespace {

constexpr std::chrono::milliseconds kPause{1};
constexpr std::chrono::milliseconds kAskEvery{500};

std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()),
                  std::chrono::milliseconds(1));
}

/// What NCCL takes for this rank's host: ranks of different ones do not share memory or switches.
std::string host_of_rank() { return core::env_string("NCCL_HOSTID").value_or(host_name()); }

std::string bus_id(Device device) {
  char text[32] = {};
  DDP_CUDA_CHECK(cudaDeviceGetPCIBusId(text, sizeof(text), device.index));
  return text;
}

/// Whether this GPU can have its sums made in the NVLink switch (CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, which the
/// runtime's enumeration leaves without a name).
bool has_switch_sums(Device device) {
  if (core::env_string("NCCL_NVLS_ENABLE").value_or("") == "0") return false;
  int supported = 0;
  if (cudaDeviceGetAttribute(&supported, static_cast<cudaDeviceAttr>(132), device.index) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return supported != 0;
}

/// What a rank tells the others: "<0 or 1> <bus id> <host>".
struct Record {
  bool switch_sums = false;
  std::string bus;
  std::string host;

  static Record parse(const std::string& text) {
    const auto first = text.find(' ');
    const auto second = text.find(' ', first + 1);
    return {.switch_sums = text.substr(0, first) == "1",
            .bus = text.substr(first + 1, second - first - 1),
            .host = text.substr(second + 1)};
  }
};

}  // namespace

std::string NcclCore::absent_ranks(const std::string& key) {
  std::vector<int> absent;
  try {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank() && !store().check(concat(key, peer))) absent.push_back(peer);
    }
  } catch (const Error&) {
    return "; the store is gone";
  }
  return absent.empty() ? "" : concat("; not there: ", list_of_ranks(absent));
}

std::vector<std::string> NcclCore::meet(Clock::time_point deadline) {
  const Record mine{.switch_sums = has_switch_sums(device()), .bus = bus_id(device()), .host = host_of_rank()};
  store().set_text(concat("nccl/rank/", rank()), concat(mine.switch_sums ? 1 : 0, " ", mine.bus, " ", mine.host));
  std::vector<std::string> records;
  for (int peer = 0; peer < size(); ++peer) {
    try {
      records.push_back(store().get_text(concat("nccl/rank/", peer), until(deadline)));
    } catch (const TimeoutError&) {
      ddp::detail::fail<TimeoutError>("rank ", rank(), " of ", size(), ": making a NCCL group timed out after ",
                                      config_.timeout.count(), " ms", absent_ranks("nccl/rank/"));
    }
  }
  return records;
}

// All ranks see the same records, so they come to the same conclusions.
void NcclCore::judge(const std::vector<std::string>& texts) {
  std::map<std::string, int> sharing;  // ranks with switch sums by host
  std::map<std::pair<std::string, std::string>, int> owner;
  const bool may_share = core::env_string("NCCL_MULTI_RANK_GPU_ENABLE").value_or("0") != "0";
  for (int peer = 0; peer < size(); ++peer) {
    const Record record = Record::parse(texts[static_cast<std::size_t>(peer)]);
    if (record.switch_sums) ++sharing[record.host];
    const auto [place, added] = owner.try_emplace({record.host, record.bus}, peer);
    DDP_CHECK(
        added || may_share, InvalidArgument, "rank ", place->second, " and rank ", peer,
        " are both on the GPU with bus id ", record.bus, " of host ", record.host,
        "; NCCL wants one GPU a rank. `ddp run --share-gpu` sets what several ranks on one GPU need (a NCCL_HOSTID "
        "of its own for each)");
  }
  // NCCL's own average multiplies before it adds, which the switch cannot do; then a plain sum and one division are
  // faster. Elsewhere its average saves the division.
  average_by_division_ = std::ranges::any_of(sharing, [](const auto& host) { return host.second >= 2; });
}

void NcclCore::await(ncclComm_t comm, std::string_view what, const std::string& progress_key,
                     Clock::time_point deadline) {
  auto next_question = Clock::now() + kAskEvery;
  while (true) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess) return;
    const auto now = Clock::now();
    std::string error;
    if (now >= next_question || state != ncclInProgress) {
      error = first_error();
      next_question = now + kAskEvery;
    }
    if (dead()) ddp::detail::fail<CommError>("rank ", rank(), " of ", size(), ": ", what, ": ", death_reason());
    DDP_CHECK(state == ncclInProgress && error.empty(), CommError, "rank ", rank(), " of ", size(), ": ", what,
              " failed", state == ncclInProgress ? "" : concat(": NCCL: ", nccl_text(state, comm)),
              error.empty() ? absent_ranks(progress_key) : concat("; first error: ", error));
    DDP_CHECK(now < deadline, TimeoutError, "rank ", rank(), " of ", size(), ": ", what, " timed out after ",
              config_.timeout.count(), " ms", absent_ranks(progress_key));
    std::this_thread::sleep_for(kPause);
  }
}

void NcclCore::connect() {
  const auto deadline = deadline_after(config_.timeout);
  const core::cuda::DeviceGuard guard(device());
  judge(meet(deadline));
  failure_word_ = raw::take_host_word(device());
  ncclUniqueId id;
  if (rank() == 0) {
    const ncclResult_t made = ncclGetUniqueId(&id);
    DDP_CHECK(made == ncclSuccess, CommError, "rank 0 of ", size(), ": ncclGetUniqueId: ", nccl_text(made, nullptr));
    store().set("nccl/id", std::span(reinterpret_cast<const std::uint8_t*>(id.internal), sizeof(id.internal)));
  } else {
    const Bytes bytes = store().get("nccl/id", until(deadline));
    DDP_CHECK(bytes.size() == sizeof(id.internal), CommError, "the store holds a NCCL id of ", bytes.size(), " bytes");
    std::memcpy(id.internal, bytes.data(), bytes.size());
  }
  root_ = std::make_shared<NcclLane>(device());
  root_->blocking = false;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t started = ncclCommInitRankConfig(&root_->comm, size(), id, rank(), &config);
  DDP_CHECK(started == ncclSuccess || started == ncclInProgress, CommError, "rank ", rank(), " of ", size(),
            ": ncclCommInitRankConfig: ", nccl_text(started, root_->comm));
  await(root_->comm, "connecting the ranks", "nccl/ready/", deadline);
  store().set_text(concat("nccl/ready/", rank()), "1");
}

void NcclCore::add_lane() {
  const auto deadline = deadline_after(config_.timeout);
  const core::cuda::DeviceGuard guard(device());
  const std::string key = concat("nccl/lane/", lanes(), "/");
  auto lane = std::make_shared<NcclLane>(device());
  {
    const std::lock_guard lock(root_->mutex);
    DDP_CHECK(root_->comm != nullptr && !dead(), CommError, "rank ", rank(), " of ", size(),
              ": ensure_lanes: ", death_reason());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    const ncclResult_t started = ncclCommSplit(root_->comm, 0, rank(), &lane->comm, &config);
    DDP_CHECK(started == ncclSuccess || started == ncclInProgress, CommError, "rank ", rank(), " of ", size(),
              ": ncclCommSplit: ", nccl_text(started, root_->comm));
    await(root_->comm, "making a lane", key, deadline);
    DDP_CHECK(lane->comm != nullptr, CommError, "rank ", rank(), " of ", size(), ": NCCL made no communicator");
  }
  {
    const std::lock_guard lock(end_mutex_);
    lanes_.push_back(lane);
  }
  warm(*lane, key, deadline);
}

// The first collective of a kind connects the ranks for it: here and not in the first step. Two sizes, because NCCL has
// an algorithm for small and one for large ones.
void NcclCore::warm(NcclLane& lane, const std::string& progress_key, Clock::time_point deadline) {
  constexpr std::size_t kLarge = 1 << 20;
  const auto memory = [&](std::size_t bytes) {
    return std::shared_ptr<void>(core::allocate(bytes, lane.stream), [view = lane.stream.view(), bytes](void* block) {
      core::deallocate(block, bytes, view);
    });
  };
  lane.scratch = memory(64);
  const auto large = memory(kLarge);
  Event end(device());
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(lane.mutex);
    DDP_CHECK(lane.comm != nullptr, CommError, "rank ", rank(), " of ", size(), ": ", death_reason());
    core::device_runtime(DeviceType::cuda).fill_zero(lane.scratch.get(), 64, lane.stream);
    core::device_runtime(DeviceType::cuda).fill_zero(large.get(), kLarge, lane.stream);
    for (const std::size_t bytes : {std::size_t{64}, kLarge}) {
      void* buffer = bytes == kLarge ? large.get() : lane.scratch.get();
      result = ncclAllReduce(buffer, buffer, bytes / sizeof(float), ncclFloat32, ncclSum, lane.comm,
                             lane.stream.view().native());
      if (result == ncclInProgress) result = finish_in_progress(lane.comm);
      if (result != ncclSuccess) break;
    }
    DDP_CHECK(result == ncclSuccess, CommError, "rank ", rank(), " of ", size(),
              ": a lane's first collective: NCCL: ", nccl_text(result, lane.comm));
    end.record(lane.stream);
  }
  while (!end.is_complete()) {
    {
      const std::lock_guard lock(lane.mutex);
      DDP_CHECK(lane.comm != nullptr, CommError, "rank ", rank(), " of ", size(), ": ", death_reason());
      await(lane.comm, "a lane's first collective", progress_key, deadline);
    }
    DDP_CHECK(Clock::now() < deadline, TimeoutError, "rank ", rank(), " of ", size(),
              ": a lane's first collective timed out after ", config_.timeout.count(), " ms",
              absent_ranks(progress_key));
    std::this_thread::sleep_for(kPause);
  }
  store().set_text(concat(progress_key, rank()), "1");
}

// In slices, so that the group's end does not wait for a peer that does not come.
Bytes NcclCore::get_while_alive(const std::string& key, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kSlice{100};
  while (true) {
    const auto left = until(deadline);
    try {
      return store().get(key, std::min(left, kSlice));
    } catch (const TimeoutError&) {
      DDP_CHECK(!dead(), CommError, "ended because: ", death_reason());
      if (left <= kSlice) throw;
    }
  }
}

std::shared_ptr<NcclLane> NcclCore::connect_pair(const std::string& key, int pair_rank) {
  const auto deadline = deadline_after(config_.timeout);
  const core::cuda::DeviceGuard guard(device());
  ncclUniqueId id;
  if (pair_rank == 0) {
    const ncclResult_t made = ncclGetUniqueId(&id);
    DDP_CHECK(made == ncclSuccess, CommError, "ncclGetUniqueId: ", nccl_text(made, nullptr));
    store().set(concat(key, "id"), std::span(reinterpret_cast<const std::uint8_t*>(id.internal), sizeof(id.internal)));
  } else {
    const Bytes bytes = get_while_alive(concat(key, "id"), deadline);
    DDP_CHECK(bytes.size() == sizeof(id.internal), CommError, "the store holds a NCCL id of ", bytes.size(), " bytes");
    std::memcpy(id.internal, bytes.data(), bytes.size());
  }
  auto pair = std::make_shared<NcclLane>(device());
  pair->blocking = false;
  {
    const std::lock_guard lock(pair->mutex);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t started = ncclCommInitRankConfig(&pair->comm, 2, id, pair_rank, &config);
    DDP_CHECK(started == ncclSuccess || started == ncclInProgress, CommError, "rank ", rank(), " of ", size(),
              ": ncclCommInitRankConfig: ", nccl_text(started, pair->comm));
    {
      const std::lock_guard end_lock(end_mutex_);
      pairs_.push_back(pair);
    }
    await(pair->comm, "connecting two ranks for messages", "nccl/rank/", deadline);
  }
  return pair;
}

}  // namespace ddp::comm
