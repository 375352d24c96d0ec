#pragma once

#include <cstdint>
#include <type_traits>

#include "ddp/core/device.h"

/// Work sharing inside one operation on a CPU device: each device has its own pool of
/// num_threads(device) threads, the caller being one of them.
namespace ddp::core {

/// A reference to a callable; it must outlive the call. No allocation.
class RangeFunction {
 public:
  template <class F>
    requires(!std::is_same_v<F, RangeFunction>)  // else it would win over the copy constructor
  RangeFunction(F& function)                     // NOLINT(google-explicit-constructor)
      : object_(&function),
        call_([](void* object, std::int64_t begin, std::int64_t end) { (*static_cast<F*>(object))(begin, end); }) {}
  void operator()(std::int64_t begin, std::int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, std::int64_t);
};

/// Splits [0, n) into contiguous pieces of at least `grain` and runs them on the device's threads.
/// Returns when all are done; the first exception is rethrown here. With one thread, or n <= grain, runs
/// `function(0, n)` on the caller. Nested calls run on the calling thread. How the range is cut depends
/// only on n, grain and the thread count.
void parallel_for_range(Device device, std::int64_t n, std::int64_t grain, RangeFunction function);

template <class F>
void parallel_for(Device device, std::int64_t n, std::int64_t grain, F&& function) {
  auto& reference = function;
  parallel_for_range(device, n, grain, RangeFunction(reference));
}

}  // namespace ddp::core
