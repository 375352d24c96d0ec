#include "comm/store/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "comm/watchdog.h"
#include "ddp/core/error.h"

namespace ddp::comm {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::string errno_text(int error) { return std::generic_category().message(error); }

std::string host_port(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? concat(host, ":", port) : concat("[", host, "]:", port);
}

std::string checked_host(const std::string& host) {
  const auto begin = host.find_first_not_of(" \t\r\n");
  DDP_CHECK(begin != std::string::npos, InvalidArgument, "host name '", host, "' is empty");
  const std::string trimmed = host.substr(begin, host.find_last_not_of(" \t\r\n") - begin + 1);
  constexpr std::size_t kLongest = 253;
  const bool plain = std::ranges::all_of(trimmed, [](unsigned char c) { return c > ' ' && c < 0x7f && c != '/'; });
  DDP_CHECK(plain && trimmed.size() <= kLongest, InvalidArgument, "'", host,
            "' is not a host name or address (letters without blanks or '/', at most ", kLongest, ")");
  return trimmed;
}

int poll_timeout(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count() + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

namespace {

struct Lookup {
  std::mutex mutex;
  std::condition_variable done_condition;
  bool done = false;
  int status = 0;
  std::vector<Endpoint> endpoints;
};

int look_up(const std::string& host, std::uint16_t port, int flags, std::vector<Endpoint>& endpoints) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (status != 0) return status;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.address, entry->ai_addr, entry->ai_addrlen);
    endpoint.length = entry->ai_addrlen;
    endpoints.push_back(endpoint);
  }
  freeaddrinfo(list);
  return 0;
}

// getaddrinfo knows no deadline: it runs on a thread that is left behind when it takes too long.
int look_up_until(const std::string& host, std::uint16_t port, Clock::time_point deadline,
                  std::vector<Endpoint>& endpoints) {
  const auto lookup = std::make_shared<Lookup>();
  start_library_thread([lookup, host, port] {
    std::vector<Endpoint> found;
    const int status = look_up(host, port, 0, found);
    const std::lock_guard lock(lookup->mutex);
    lookup->status = status;
    lookup->endpoints = std::move(found);
    lookup->done = true;
    lookup->done_condition.notify_all();
  }).detach();
  std::unique_lock lock(lookup->mutex);
  if (!lookup->done_condition.wait_until(lock, deadline, [&] { return lookup->done; })) return EAI_AGAIN;
  endpoints = lookup->endpoints;
  return lookup->status;
}

bool wait_for(int fd, short events, Clock::time_point deadline) {
  while (true) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the call that follows says why
    if (Clock::now() >= deadline) return false;
  }
}

Descriptor open_socket(int family) {
  return Descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, Clock::time_point deadline) {
  std::vector<Endpoint> endpoints;
  if (look_up(host, port, AI_NUMERICHOST, endpoints) == 0) return endpoints;
  const auto give_up = std::min(deadline, Clock::now() + std::chrono::seconds(5));
  int status = 0;
  while (true) {
    status = look_up_until(host, port, give_up, endpoints);
    if (status == 0 && !endpoints.empty()) return endpoints;
    if (status != EAI_AGAIN || Clock::now() + std::chrono::milliseconds(500) >= give_up) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  ddp::detail::fail<CommError>("host name '", host, "' has no address: ", gai_strerror(status));
}

Descriptor try_connect(const Endpoint& endpoint, Clock::time_point deadline, std::string& reason) {
  Descriptor socket = open_socket(endpoint.address.ss_family);
  if (!socket) {
    reason = errno_text(errno);
    return {};
  }
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) {
      reason = errno_text(errno);
      return {};
    }
    if (!wait_for(socket.get(), POLLOUT, deadline)) {
      reason = "no answer";
      return {};
    }
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      reason = errno_text(error);
      return {};
    }
  }
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

Descriptor try_listen(const Endpoint& endpoint, bool both_families, int& error) {
  Descriptor socket = open_socket(endpoint.address.ss_family);
  error = errno;
  if (!socket) return {};
  // A port whose last user has just gone can be taken at once; one that is listened on still cannot.
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (endpoint.address.ss_family == AF_INET6) {
    const int only = both_families ? 0 : 1;
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  constexpr int kBacklog = 1024;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.length) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    error = errno;
    return {};
  }
  error = 0;
  return socket;
}

std::uint16_t port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void set_port(Endpoint& endpoint, std::uint16_t port) {
  if (endpoint.address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(endpoint.address).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(endpoint.address).sin_port = htons(port);
  }
}

bool send_all(const Descriptor& socket, const void* data, std::size_t bytes, Clock::time_point deadline,
              std::string& reason) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket.get(), at, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket.get(), POLLOUT, deadline)) {
        reason = "no answer";
        return false;
      }
    } else if (errno != EINTR) {
      reason = errno_text(errno);
      return false;
    }
  }
  return true;
}

bool recv_all(const Descriptor& socket, void* data, std::size_t bytes, Clock::time_point deadline,
              std::string& reason) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket.get(), at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= static_cast<std::size_t>(got);
    } else if (got == 0) {
      reason = "the connection was closed";
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket.get(), POLLIN, deadline)) {
        reason = "no answer";
        return false;
      }
    } else if (errno != EINTR) {
      reason = errno_text(errno);
      return false;
    }
  }
  return true;
}

std::string source_address_towards(const std::string& host, std::uint16_t port, Clock::time_point deadline) {
  std::string reason = "no address";
  for (const Endpoint& endpoint : resolve(host, port, deadline)) {
    // Connecting a datagram socket only picks a route.
    const Descriptor socket(::socket(endpoint.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    char text[NI_MAXHOST] = {};
    if (!socket ||
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.length) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
        ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
            0) {
      reason = errno_text(errno);
      continue;
    }
    return text;
  }
  ddp::detail::fail<CommError>("no route from this host to '", host, "': ", reason);
}

}  // namespace ddp::comm
