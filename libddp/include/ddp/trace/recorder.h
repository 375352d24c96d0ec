#pragma once

#include <chrono>
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
  data_wait,  ///< the training loop waits for a batch
  copy,       ///< between host and device
  forward,
  backward,
  bucket_ready,  ///< a point: the last gradient of a bucket is there
  collective,
  optimizer,
  wait,      ///< a host-blocking call
  exposed,   ///< gradient sums that were not there when backward had ended: communication that nothing hides
  host_gap,  ///< the compute stream had nothing to do between two phases: the device waited for the host
  user,
  count_
};
std::string_view name(SpanKind kind);

/// A piece of time on the host's steady clock, on a host thread or a device's stream.
struct Span {
  SpanKind kind = SpanKind::user;
  std::uint8_t reserved = 0;
  std::uint16_t track = 0;  ///< the thread or stream it was measured on; see `track_name`
  std::int32_t lane = 0;    ///< communicator lane or bucket, by kind
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

/// Which steps keep their spans: the first so many after this call, then every so many-th. Counters are kept
/// of every step. Defaults 10 and 50; `every` 0 keeps none after the first ones, 1 keeps all.
struct Sampling {
  std::int64_t first = 10;
  std::int64_t every = 50;
};
/// Throws InvalidArgument for a negative number.
void set_sampling(Sampling sampling);
/// Spans are on and the present step is one that keeps them. Before the first `begin_step`: whether they are on.
bool sampled() noexcept;

/// Keeps a span in the ring (65,536 newest), when sampled, on the calling thread's track. Wait-free, no
/// allocation but for a thread's first span. A span is dropped if its slot is still being written by a thread
/// that the others have lapped.
void record(SpanKind kind, std::int64_t begin_ns, std::int64_t end_ns, std::string_view label = {},
            std::int32_t lane = 0) noexcept;
std::int64_t now_ns() noexcept;

/// "host thread 1", "cuda:0 stream 2", or what `name_track` said.
std::string track_name(std::uint16_t track);
/// The number of the calling thread's track.
std::uint16_t host_track() noexcept;

/// Marks the start of the next step; returns its number, from 1. Takes in what devices have finished. Call it
/// from the thread that trains.
std::int64_t begin_step() noexcept;
std::int64_t current_step() noexcept;

/// The spans kept, in order of recording; a device's spans appear when it has passed their end and a
/// `begin_step`, `flush` or this call comes after that. Does not block.
std::vector<Span> spans();
/// Forgets spans and step records; counters go on.
void clear();
/// Blocks the host until the devices have passed the ends of all spans, for at most so long. False when some
/// are missing still.
bool flush(std::chrono::milliseconds timeout = std::chrono::seconds(10));

/// Emits NVTX ranges for host spans, for Nsight. Off unless DDP_NVTX=1 or a tool has injected itself; needs a build
/// with the NVTX headers, else nothing happens.
void set_nvtx(bool on) noexcept;

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
  bool range_ = false;  // an NVTX range is open
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

/// One finished step: from its `begin_step` to the next.
struct StepRecord {
  std::int64_t step = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  bool sampled = false;      ///< its spans were kept, and the times below measured
  CounterSnapshot counters;  ///< counted during the step
  /// Nanoseconds by SpanKind, added up over the step's spans; where a phase was measured on host and device, the
  /// device's. Spans that the device had not finished yet come in later.
  std::int64_t span_ns[static_cast<int>(SpanKind::count_)] = {};
  std::int64_t operator[](SpanKind kind) const { return span_ns[static_cast<int>(kind)]; }
};
/// The 4,096 newest finished steps, oldest first, kept while spans are on.
std::vector<StepRecord> steps();

/// Both wait for the devices as `flush` does, write to a temporary name and rename. They throw IoError naming the
/// path. JSON lines: one object per span, one per step, and a last one with all counters.
void write_json_lines(const std::string& path, int rank);
/// Chrome's trace event format, which Perfetto opens: one process for the rank, one track per thread and stream,
/// an arrow from a bucket being ready to its collective.
void write_chrome_trace(const std::string& path, int rank);
/// Joins the traces of several ranks into one. Throws IoError or InvalidArgument naming the file at fault.
void merge_chrome_traces(const std::vector<std::string>& paths, const std::string& merged);

}  // namespace ddp::trace
