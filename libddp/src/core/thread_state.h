#pragma once

/// The thread-local switches of the library; the public guards are in the rooms that own the ideas.
namespace ddp::core {

// constinit: read without a check whether it has been initialised.
inline constinit thread_local bool t_grad_mode = true;

/// Whether operations of this thread are recorded for backward.
inline bool& grad_mode() noexcept { return t_grad_mode; }

inline constinit thread_local bool t_pin_host_memory = false;

/// Inside, CPU tensors that the thread makes are in page-locked memory where there is some, so that they can be copied
/// to a device without blocking.
class PinHostMemory {
 public:
  explicit PinHostMemory(bool on = true) noexcept : previous_(t_pin_host_memory) { t_pin_host_memory |= on; }
  ~PinHostMemory() { t_pin_host_memory = previous_; }
  PinHostMemory(const PinHostMemory&) = delete;
  PinHostMemory& operator=(const PinHostMemory&) = delete;

 private:
  bool previous_;
};

}  // namespace ddp::core
