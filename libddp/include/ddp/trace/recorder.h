#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What happened in each step, as counters and spans. The only counter mechanism of the library.
namespace ddp::trace {

enum class Counter : std::uint8_t {
  collectives,            ///< issued
  bytes_reduced,          ///< bytes of tensors handed to collectives
  kernel_launches,        ///< operations started on a device
  bytes_copied,           ///< by explicit copies, bucket copies among them
  gradient_bytes_copied,  ///< between a gradient and its bucket
  allocations,            ///< blocks taken from the caching allocators
  blocking_calls,         ///< host-blocking calls
  blocking_ns,            ///< time in them
  count_
};
std::string_view name(Counter counter);

enum class SpanKind : std::uint8_t {
  data_wait,
  copy,
  forward,
  backward,
  bucket_ready,
  collective,
  optimizer,
  wait,
  user,
  count_
};
std::string_view name(SpanKind kind);

/// A piece of time on the host's steady clock.
struct Span {
  SpanKind kind = SpanKind::user;
  std::int32_t lane = 0;  ///< communicator lane, bucket or thread, by kind
  std::int64_t step = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  char label[40] = {};  ///< cut off where longer
};

/// Adds to a process-wide counter. Wait-free; counted always. What core reports by itself (blocking calls,
/// launches, copies) is counted from the process's first call of any function here.
void count(Counter counter, std::int64_t amount = 1) noexcept;
/// Value since the process began.
std::int64_t total(Counter counter) noexcept;

/// Whether spans are kept. Off by default; switching is thread safe. The first switch to on takes the memory
/// of the ring (6 MiB); where there is none, spans stay off.
bool enabled() noexcept;
void set_enabled(bool on) noexcept;

/// Keeps a span in the ring (65,536 newest), when enabled. Wait-free, no allocation. A span is dropped if
/// its slot is still being written by a thread that the others have lapped.
void record(SpanKind kind, std::int64_t begin_ns, std::int64_t end_ns, std::string_view label = {},
            std::int32_t lane = 0) noexcept;
std::int64_t now_ns() noexcept;

/// Marks the start of the next step; returns its number, from 1.
std::int64_t begin_step() noexcept;
std::int64_t current_step() noexcept;

/// The spans kept, oldest first.
std::vector<Span> spans();
/// Forgets spans; counters go on.
void clear();

/// Records the time from construction to the end of the scope, when enabled at construction. The label
/// must outlive the scope.
class ScopedSpan {
 public:
  explicit ScopedSpan(SpanKind kind, std::string_view label = {}, std::int32_t lane = 0) noexcept;
  ~ScopedSpan();
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  SpanKind kind_;
  std::string_view label_;
  std::int32_t lane_;
  std::int64_t begin_ns_;
};

/// Counters at two points and their difference.
struct CounterSnapshot {
  std::int64_t values[static_cast<int>(Counter::count_)] = {};
  std::int64_t operator[](Counter counter) const { return values[static_cast<int>(counter)]; }
};
CounterSnapshot snapshot() noexcept;
CounterSnapshot operator-(const CounterSnapshot& later, const CounterSnapshot& earlier);

/// Writes one JSON object per span and a last one with all counters; to a temporary name, then renamed.
/// Throws IoError naming the path.
void write_json_lines(const std::string& path, int rank);

}  // namespace ddp::trace
