#pragma once

#include <cstddef>
#include <cstdint>

#include "core/allocator.h"

namespace ddp::raw::cpu {

/// Working memory of one call, from the device's cache of blocks. Contents undefined.
template <class T>
class Scratch {
 public:
  Scratch(std::int64_t count, Device device)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)),
        stream_(device),
        data_(static_cast<T*>(core::allocate(bytes_, stream_))) {}
  ~Scratch() { core::deallocate(data_, bytes_, stream_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }
  T& operator[](std::int64_t i) const { return data_[i]; }

 private:
  std::size_t bytes_;
  StreamView stream_;
  T* data_;
};

}  // namespace ddp::raw::cpu
