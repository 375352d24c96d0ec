#include "comm/nccl/nccl_core.h"

#include <algorithm>
#include <array>

#include "comm/signature.h"
#include "core/cuda/check.h"
#include "core/cuda/device_guard.h"
#include "ddp/trace/device_span.h"

namespace ddp::comm {
namespace {

/// All collectives of a device go through here one after the other, whatever group or lane they are of, so that ranks
/// that call in one order also launch in one order.
std::timed_mutex& launch_queue(Device device) {
  static std::array<std::timed_mutex, kMaxCpuDevices> queues;
  return queues[static_cast<std::size_t>(device.index)];
}

/// Whether a sum over ranks is in the dtype's range when its average is. In float16 it need not be: NCCL's own average
/// multiplies first.
bool keeps_sums(const Collective& what) {
  return what.op == ReduceOp::average && dtype_of_collective(what) != DType::float16;
}

}  // namespace

NcclCore::NcclCore(const NcclConfig& config)
    : StoreCore(config.rank, config.size, config.timeout, config.store, config.serves_store), config_(config) {}

NcclCore::~NcclCore() {
  // Threads still here are at their last line, or stuck in NCCL for good; this may be one of them.
  for (std::thread* thread : {&closer_, &aborter_}) {
    if (!thread->joinable()) continue;
    const bool done = thread == &closer_ ? closed_ : aborted_;
    if (done && thread->get_id() != std::this_thread::get_id()) {
      thread->join();
    } else {
      thread->detach();
    }
  }
}

void NcclCore::adopt_thread() { DDP_CUDA_CHECK(cudaSetDevice(device().index)); }

Clock::time_point NcclCore::poll(Clock::time_point now) noexcept {
  // The watchdog's thread. A failure shows again in the queries that follow.
  int current = -1;
  const cudaError_t asked = cudaGetDevice(&current);
  // The process ends with the group alive. No failure of the group, and nothing to abort any more.
  if (asked == cudaErrorCudartUnloading) return Clock::time_point::max();
  if (asked != cudaSuccess || current != device().index) static_cast<void>(cudaSetDevice(device().index));
  return StoreCore::poll(now);
}

ncclResult_t NcclCore::finish_in_progress(ncclComm_t comm) {
  // Only where the user has made communicators non-blocking by NCCL_COMM_BLOCKING=0, and for messages.
  const auto deadline = deadline_after(config_.timeout);
  while (true) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) return asked;
    if (state != ncclInProgress) return state;
    if (dead() || Clock::now() >= deadline) return ncclInternalError;
    std::this_thread::yield();
  }
}

void NcclCore::run(NcclLane& lane, const Event* ready, std::optional<int> pair_rank, StreamWork& work) {
  const Collective& what = work.collective();
  std::string problem;
  try {
    const core::cuda::DeviceGuard guard(device());
    std::unique_lock queue_lock(launch_queue(device()), std::defer_lock);
    // Not for messages, whose two ranks connect inside the call: two of them in opposite directions would each keep the
    // other's peer out.
    if (!pair_rank && !queue_lock.try_lock() && !queue_lock.try_lock_for(work.remaining())) {
      ddp::detail::fail<CommError>("another collective's launch on ", device(), " has not come back in time");
    }
    const std::lock_guard lock(lane.mutex);
    if (lane.comm == nullptr || dead()) {
      problem = concat("ended because: ", death_reason());
    } else {
      if (ready == nullptr) {
        lane.ready.record(current_stream(device()));
        ready = &lane.ready;
      }
      lane.stream.view().wait(*ready);
      const NcclPlace place{.comm = lane.comm,
                            .stream = lane.stream,
                            .rank = pair_rank.value_or(rank()),
                            .size = pair_rank ? 2 : size(),
                            .average_by_division = average_by_division_ && keeps_sums(what),
                            .scratch = lane.scratch.get()};
      // Before anything is queued: from then on nothing may fail that keeps its end from being known.
      auto done = std::make_shared<Event>(device());
      trace::DeviceSpan span(trace::SpanKind::collective, lane.stream, what.options.label, what.options.lane);
      const ncclResult_t result = enqueue(what, place, [this](ncclComm_t comm) { return finish_in_progress(comm); });
      span.end(lane.stream);
      // Also after an error: part of it may be on its way and use the memory.
      done->record(lane.stream);
      work.queued(std::move(done));
      if (result != ncclSuccess) problem = concat("NCCL: ", nccl_text(result, lane.comm));
    }
  } catch (const std::exception& error) {  // also want of memory: the peers must not wait for this rank
    problem = error.what();
  }
  if (!problem.empty()) finish(work, {.timeout = false, .text = in_collective(what, rank(), size(), problem)});
}

void NcclCore::enqueue_on(NcclLane& lane, StreamWork& work) { run(lane, nullptr, {}, work); }

void NcclCore::enqueue_message(NcclLane& lane, int pair_rank, StreamWork& work) {
  run(lane, &work.ready(), pair_rank, work);
}

std::vector<std::shared_ptr<NcclLane>> NcclCore::all_lanes() {
  const std::lock_guard lock(end_mutex_);
  auto all = lanes_;
  all.insert(all.end(), pairs_.begin(), pairs_.end());
  if (root_) all.push_back(root_);
  return all;
}

// --- failures ---

std::optional<Failure> NcclCore::found_failure() {
  if (asking_.load()) return {};
  std::string text;
  for (const auto& lane : all_lanes()) {
    const std::unique_lock lock(lane->mutex, std::try_to_lock);
    if (!lock.owns_lock() || lane->comm == nullptr) continue;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(lane->comm, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess || state == ncclInProgress) continue;
    text = concat("NCCL: ", nccl_text(state, lane->comm));
    break;
  }
  if (text.empty()) return {};
  // A peer that gave up has published why, and those that are left say where they are: worth a moment's asking.
  asking_ = true;
  if (!talk([self = shared_from_this(), this, text] { explain_loss(text); }))
    return Failure{.timeout = false, .text = text};
  return {};
}

void NcclCore::explain_loss(const std::string& text) {
  const Loss loss = ask_around();
  std::string full = text;
  if (!loss.first_error.empty()) full += concat("; first error: ", loss.first_error);
  if (!loss.silent.empty()) full += concat("; no sign of life from ", list_of_ranks(loss.silent));
  die({.timeout = false,
       .text = loss.work ? in_collective(loss.work->collective(), rank(), size(), full)
                         : concat("rank ", rank(), " of ", size(), ": ", full)});
}

void NcclCore::bury(std::vector<std::shared_ptr<AsyncWork>> works) {
  const std::lock_guard lock(end_mutex_);
  buried_.insert(buried_.end(), std::make_move_iterator(works.begin()), std::make_move_iterator(works.end()));
}

void NcclCore::disconnect() noexcept {
  const std::lock_guard lock(end_mutex_);
  published_ = true;
  end_condition_.notify_all();
}

void NcclCore::on_death(const Failure& failure) {
  // Before the aborter makes kernels give up: they leave their memory as it is, and what comes after them in a stream
  // must not take that for a result.
  if (std::uint64_t* word = failure_word_.load()) std::atomic_ref<std::uint64_t>(*word).store(1);
  {
    const std::lock_guard lock(end_mutex_);
    dying_ = true;
    const auto self = std::static_pointer_cast<NcclCore>(shared_from_this());
    try {
      aborter_ = start_library_thread([self] { self->abort_communicators(); });
    } catch (const std::exception&) {
      aborted_ = true;  // no thread to be had: kernels stay as they are, callers and peers hear of it all the same
    }
  }
  StoreCore::on_death(failure);
}

bool NcclCore::take(NcclLane& lane, std::chrono::milliseconds patience) {
  const std::unique_lock inside(lane.mutex, patience);
  if (!inside.owns_lock()) return false;
  const std::lock_guard lock(end_mutex_);
  lane.comm = nullptr;
  return true;
}

// Frees what is blocked. A thread may be inside a call on a communicator just then, even blocked in it: so the flags
// are set first, which make kernels and calls give up, and the communicators are freed when nobody is inside any more.
// NCCL does the first part of an abort at once and the second one at the end of the group that it is called in.
void NcclCore::abort_communicators() {
  constexpr std::chrono::milliseconds kPublish{300};
  constexpr std::chrono::seconds kStuck{10};
  struct Doomed {
    NcclLane* lane;
    ncclComm_t comm;
  };
  std::vector<Doomed> blocking;
  std::vector<Doomed> others;
  const auto lanes = all_lanes();
  {
    // The peers notice when a communicator goes, and then look for the reason.
    std::unique_lock lock(end_mutex_);
    end_condition_.wait_for(lock, kPublish, [this] { return published_; });
    for (const auto& lane : lanes) {
      if (lane->comm != nullptr) (lane->blocking ? blocking : others).push_back({lane.get(), lane->comm});
    }
  }
  try {
    adopt_thread();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
    if (!blocking.empty()) {
      static_cast<void>(ncclGroupStart());
      for (const Doomed& doomed : blocking) static_cast<void>(ncclCommAbort(doomed.comm));
      bool free = true;
      for (const Doomed& doomed : blocking) free = take(*doomed.lane, kStuck) && free;
      // With somebody stuck in there for good, the memory is better lost than taken away.
      if (free) static_cast<void>(ncclGroupEnd());
    }
#else
    for (const Doomed& doomed : blocking) {
      static_cast<void>(take(*doomed.lane, kStuck));
      static_cast<void>(ncclCommAbort(doomed.comm));
    }
#endif
    // On these no call blocks.
    for (const Doomed& doomed : others) {
      if (take(*doomed.lane, kStuck)) static_cast<void>(ncclCommAbort(doomed.comm));
    }
  } catch (const Error&) {
    // No device any more: nothing runs on it either.
  }
  std::vector<std::shared_ptr<AsyncWork>> buried;  // declared before the lock: freed after it
  const std::lock_guard lock(end_mutex_);
  buried.swap(buried_);
  aborted_ = true;
  end_condition_.notify_all();
}

// --- the end ---

void NcclCore::close_communicators() {
  try {
    adopt_thread();
    for (const auto& lane : all_lanes()) {  // in one order on all ranks: NCCL meets at this point
      const std::lock_guard inside(lane->mutex);
      if (lane->comm == nullptr) continue;
      if (ncclCommFinalize(lane->comm) == ncclInProgress) static_cast<void>(finish_in_progress(lane->comm));
      ncclComm_t comm = nullptr;
      {
        const std::lock_guard lock(end_mutex_);
        if (dying_) break;
        std::swap(comm, lane->comm);
      }
      static_cast<void>(ncclCommDestroy(comm));
    }
  } catch (const Error&) {
    // No device any more.
  }
  const std::lock_guard lock(end_mutex_);
  closed_ = true;
  end_condition_.notify_all();
}

void NcclCore::close() noexcept {
  constexpr std::chrono::milliseconds kLongest{30'000};
  constexpr std::chrono::seconds kAbort{10};
  try {
    if (!dead()) {
      if (all_lanes().empty()) return;
      std::unique_lock lock(end_mutex_);
      const auto self = std::static_pointer_cast<NcclCore>(shared_from_this());
      closer_ = start_library_thread([self] { self->close_communicators(); });
      const auto limit = std::min(config_.timeout, kLongest);
      if (end_condition_.wait_for(lock, limit, [this] { return closed_; })) return;
      lock.unlock();
      die({.timeout = true,
           .text =
               concat("rank ", rank(), " of ", size(), ": ending the group timed out after ", limit.count(), " ms")});
    }
    std::unique_lock lock(end_mutex_);
    end_condition_.wait_for(lock, kAbort, [this] { return aborted_; });
  } catch (const std::exception&) {
    // No thread or no memory to end it orderly: the process's end does.
  }
}

}  // namespace ddp::comm
