#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ddp::comm {

/// Memory that several processes of one host map. It has no name in any file system: peers reach it through the
/// maker's entry in /proc, so nothing can be left behind, whoever dies when.
class SharedMemory {
 public:
  using Secret = std::array<std::uint64_t, 2>;

  /// New memory marked with `secret`, for peers to know it by. Nothing where the system refuses.
  static std::optional<SharedMemory> create(std::size_t bytes, const Secret& secret);
  /// A peer's memory, for reading: descriptor `fd` of process `process`. Nothing unless it can be opened and has
  /// that size and secret, which memory of another host or another user's process does not.
  static std::optional<SharedMemory> open(int process, int fd, std::size_t bytes, const Secret& secret);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  int descriptor() const { return fd_; }
  /// No further process can map it; those that have keep it.
  void close_descriptor();

 private:
  SharedMemory(int fd, std::byte* data, std::size_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;  // with the secret after them
};

}  // namespace ddp::comm
