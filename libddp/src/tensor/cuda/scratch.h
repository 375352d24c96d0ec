#pragma once

#include <cstddef>
#include <cstdint>

#include "core/allocator.h"
#include "ddp/core/stream.h"

namespace ddp::raw::cuda {

/// Working memory of one call on the device's current stream. It is given back when the call returns, to later
/// work of the same stream. Contents undefined; of no elements it is null.
template <class T>
class Scratch {
 public:
  Scratch(std::int64_t count, Device device)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)),
        stream_(current_stream(device)),
        data_(static_cast<T*>(core::allocate(bytes_, stream_))) {}
  ~Scratch() {
    if (data_ != nullptr) core::deallocate(data_, bytes_, stream_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }

 private:
  std::size_t bytes_;
  StreamView stream_;
  T* data_;
};

}  // namespace ddp::raw::cuda
