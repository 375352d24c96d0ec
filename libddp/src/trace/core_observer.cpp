#include "trace/core_observer.h"

#include <atomic>
#include <cstdio>
#include <string_view>

#include "core/observer.h"
#include "ddp/trace/recorder.h"

namespace ddp::trace {
namespace {

void on_blocking_call(const char* what, Device /*device*/, std::int64_t nanoseconds, std::source_location where) {
  count(Counter::blocking_calls);
  count(Counter::blocking_ns, nanoseconds);
  if (!enabled()) return;
  std::string_view file = where.file_name();
  file.remove_prefix(file.rfind('/') + 1);  // npos + 1 is 0
  char label[sizeof(Span::label)];
  std::snprintf(label, sizeof label, "%s %.*s:%u", what, static_cast<int>(file.size()), file.data(),
                static_cast<unsigned>(where.line()));
  const std::int64_t end = now_ns();
  record(SpanKind::wait, end - nanoseconds, end, label);
}

void on_launch(const char* /*what*/, Device /*device*/) { count(Counter::kernel_launches); }

void on_copy(Device /*from*/, Device /*to*/, std::int64_t bytes) { count(Counter::bytes_copied, bytes); }

constinit const core::Observer kObserver{on_blocking_call, on_launch, on_copy};
constinit std::atomic<bool> listening{false};

}  // namespace

void listen_to_core() noexcept {
  if (listening.load(std::memory_order_relaxed)) return;
  if (!listening.exchange(true, std::memory_order_acq_rel)) core::set_observer(&kObserver);
}

}  // namespace ddp::trace
