#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/async_work.h"

/// POSIX sockets with deadlines. Nothing here raises SIGPIPE or blocks beyond its deadline.
namespace ddp::comm {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct Endpoint {
  sockaddr_storage address = {};
  socklen_t length = 0;
};

/// Text of an errno value.
std::string errno_text(int error);
/// "10.0.0.1:29500", "[::1]:29500".
std::string host_port(const std::string& host, std::uint16_t port);
/// Cuts blanks at both ends. Throws InvalidArgument, quoting it, for a name that cannot be a host.
std::string checked_host(const std::string& host);
/// All addresses of a name, IPv4 and IPv6. Throws CommError quoting the name; retries for a few seconds at most
/// when the name service is not there.
std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, Clock::time_point deadline);

/// One attempt. An empty descriptor and the reason when it fails.
Descriptor try_connect(const Endpoint& endpoint, Clock::time_point deadline, std::string& reason);
/// Listens. An empty descriptor and errno in `error` when it fails. `both_families`: an IPv6 socket for IPv4 too.
Descriptor try_listen(const Endpoint& endpoint, bool both_families, int& error);
std::uint16_t port_of(const Descriptor& socket);
void set_port(Endpoint& endpoint, std::uint16_t port);

/// False when the deadline passes or the peer is gone; then `reason` says which.
bool send_all(const Descriptor& socket, const void* data, std::size_t bytes, Clock::time_point deadline,
              std::string& reason);
bool recv_all(const Descriptor& socket, void* data, std::size_t bytes, Clock::time_point deadline, std::string& reason);

/// The address of this host that packets to `host` would come from. Nothing is sent.
std::string source_address_towards(const std::string& host, std::uint16_t port, Clock::time_point deadline);

/// poll() argument for the time until a deadline: rounded up, at most a minute.
int poll_timeout(Clock::time_point deadline);

}  // namespace ddp::comm
