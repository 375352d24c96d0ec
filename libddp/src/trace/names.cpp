#include "ddp/trace/recorder.h"

namespace ddp::trace {

std::string_view name(Counter counter) {
  switch (counter) {
    case Counter::collectives:
      return "collectives";
    case Counter::bytes_reduced:
      return "bytes_reduced";
    case Counter::kernel_launches:
      return "kernel_launches";
    case Counter::bytes_copied:
      return "bytes_copied";
    case Counter::gradient_bytes_copied:
      return "gradient_bytes_copied";
    case Counter::allocations:
      return "allocations";
    case Counter::blocking_calls:
      return "blocking_calls";
    case Counter::blocking_ns:
      return "blocking_ns";
    case Counter::count_:
      break;
  }
  return "unknown";
}

std::string_view name(SpanKind kind) {
  switch (kind) {
    case SpanKind::data_wait:
      return "data_wait";
    case SpanKind::copy:
      return "copy";
    case SpanKind::forward:
      return "forward";
    case SpanKind::backward:
      return "backward";
    case SpanKind::bucket_ready:
      return "bucket_ready";
    case SpanKind::collective:
      return "collective";
    case SpanKind::optimizer:
      return "optimizer";
    case SpanKind::wait:
      return "wait";
    case SpanKind::exposed:
      return "exposed";
    case SpanKind::host_gap:
      return "host_gap";
    case SpanKind::user:
      return "user";
    case SpanKind::count_:
      break;
  }
  return "unknown";
}

}  // namespace ddp::trace
