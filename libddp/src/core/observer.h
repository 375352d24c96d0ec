#pragma once

#include <cstdint>
#include <source_location>

#include "ddp/core/device.h"

/// How core reports what the recorder counts, without knowing the recorder. `trace` installs the
/// functions; until then reports go nowhere at the cost of one relaxed load.
namespace ddp::core {

struct Observer {
  /// A call blocked the host for `nanoseconds`. `what` is a literal.
  void (*blocking_call)(const char* what, Device device, std::int64_t nanoseconds,
                        std::source_location where) = nullptr;
  /// A kernel or copy was launched on a device. `what` is a literal.
  void (*launch)(const char* what, Device device) = nullptr;
  /// Bytes copied between two memories, or within one by an explicit copy.
  void (*copy)(Device from, Device to, std::int64_t bytes) = nullptr;
};

/// Null while nothing listens. The pointed-to object lives for the rest of the process.
const Observer* observer() noexcept;
void set_observer(const Observer* observer) noexcept;

/// Measures one host-blocking call and reports it at the end of the scope. A scope inside another of the same thread
/// is part of the same call and reports nothing.
class BlockingScope {
 public:
  BlockingScope(const char* what, Device device, std::source_location where) noexcept;
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;

 private:
  const char* what_;
  Device device_;
  std::source_location where_;
  std::int64_t start_ns_ = 0;  // 0: nobody listens
};

}  // namespace ddp::core
