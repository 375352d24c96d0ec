#include "comm/gloo/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "ddp/core/error.h"

namespace ddp::comm {
namespace {

std::size_t with_secret(std::size_t bytes) { return bytes + sizeof(SharedMemory::Secret); }

}  // namespace

std::optional<SharedMemory> SharedMemory::create(std::size_t bytes, const Secret& secret) {
  const int fd = memfd_create("ddp-lane", MFD_CLOEXEC);
  if (fd < 0) return std::nullopt;
  SharedMemory memory(fd, nullptr, with_secret(bytes));
  // Taken now: memory that runs out at the first touch would end the process with SIGBUS.
  if (posix_fallocate(fd, 0, static_cast<off_t>(memory.bytes_)) != 0) return std::nullopt;
  void* data = mmap(nullptr, memory.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return std::nullopt;
  memory.data_ = static_cast<std::byte*>(data);
  std::memcpy(memory.data_ + bytes, secret.data(), sizeof(Secret));
  return memory;
}

std::optional<SharedMemory> SharedMemory::open(int process, int fd, std::size_t bytes, const Secret& secret) {
  const std::string path = concat("/proc/", process, "/fd/", fd);
  // O_NONBLOCK: in a process of another host the number may be anything, a pipe among them.
  SharedMemory memory(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), nullptr, with_secret(bytes));
  struct stat status{};
  if (memory.fd_ < 0 || fstat(memory.fd_, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size != static_cast<off_t>(memory.bytes_)) {
    return std::nullopt;
  }
  void* data = mmap(nullptr, memory.bytes_, PROT_READ, MAP_SHARED, memory.fd_, 0);
  if (data == MAP_FAILED) return std::nullopt;
  memory.data_ = static_cast<std::byte*>(data);
  if (std::memcmp(memory.data_ + bytes, secret.data(), sizeof(Secret)) != 0) return std::nullopt;
  memory.close_descriptor();
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  close_descriptor();
  if (data_ != nullptr) munmap(data_, bytes_);
}

void SharedMemory::close_descriptor() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace ddp::comm
