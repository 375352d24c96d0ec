#include "core/system_memory.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "core/allocator.h"
#include "core/device_runtime.h"
#include "ddp/core/error.h"

namespace ddp::core {
namespace {

/// Keeps other threads' requests out of a group of launches, and a group out of a running request. Nobody waits long
/// for it: a group may itself be waiting for a thread that is making a request here, and then order between the two
/// threads is not what matters.
class Gate {
 public:
  void begin_group() noexcept { enter(groups_, requests_); }
  void end_group() noexcept { leave(groups_); }
  void begin_request() noexcept { enter(requests_, groups_); }
  void end_request() noexcept { leave(requests_); }

 private:
  static constexpr std::chrono::milliseconds kPatience{100};

  void enter(int& own, const int& others) noexcept {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&others] { return others == 0; });
    ++own;
  }
  void leave(int& own) noexcept {
    const std::lock_guard lock(mutex_);
    if (--own == 0) changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int groups_ = 0;
  int requests_ = 0;
};

/// Never destroyed, as the pools.
Gate& gate() {
  static auto* instance = new Gate;
  return *instance;
}

class Request {
 public:
  explicit Request(Device device, Memory kind) : gated_(device.is_cuda() || kind == Memory::pinned_host) {
    if (gated_) gate().begin_request();
  }
  ~Request() {
    if (gated_) gate().end_request();
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

 private:
  bool gated_;
};

struct Postponed {
  Memory kind;
  Device device;
  void* pointer;
  std::size_t bytes;
};

constinit thread_local const char* t_group = nullptr;  // the innermost scope's name
constinit thread_local std::vector<Postponed>* t_postponed = nullptr;

bool forbidden(Memory kind, Device device) {
  return t_group != nullptr && (device.is_cuda() || kind == Memory::pinned_host);
}

void give_back(Memory kind, Device device, void* pointer, std::size_t bytes) noexcept {
  const Request request(device, kind);
  if (kind == Memory::pinned_host) {
    cuda_runtime().deallocate_pinned(pointer);
  } else {
    device_runtime(device.type).deallocate(device, pointer, bytes);
  }
}

}  // namespace

void* system_allocate(Memory kind, Device device, std::size_t bytes) {
  DDP_CHECK(!forbidden(kind, device), InvalidArgument, "a request for ", bytes, " bytes of ",
            kind == Memory::pinned_host ? concat("pinned host memory") : to_string(device),
            " would have to go to the system between the launches of '", t_group == nullptr ? "" : t_group,
            "', where it may wait for ever; take the memory before");
  const Request request(device, kind);
  return kind == Memory::pinned_host ? cuda_runtime().allocate_pinned(bytes)
                                     : device_runtime(device.type).allocate(device, bytes);
}

void system_deallocate(Memory kind, Device device, void* pointer, std::size_t bytes) noexcept {
  if (forbidden(kind, device)) {
    try {
      if (t_postponed == nullptr) t_postponed = new std::vector<Postponed>;
      t_postponed->push_back({kind, device, pointer, bytes});
      return;
    } catch (...) {
      return;  // no room to remember it: better lost than a group that hangs
    }
  }
  give_back(kind, device, pointer, bytes);
}

NoDeviceAllocation::NoDeviceAllocation(const char* what) : previous_(t_group) {
  if (t_group == nullptr) gate().begin_group();
  t_group = what;
}

NoDeviceAllocation::~NoDeviceAllocation() {
  t_group = previous_;
  if (t_group != nullptr) return;
  gate().end_group();
  if (t_postponed == nullptr) return;
  for (const Postponed& block : *t_postponed) give_back(block.kind, block.device, block.pointer, block.bytes);
  delete t_postponed;
  t_postponed = nullptr;
}

}  // namespace ddp::core
