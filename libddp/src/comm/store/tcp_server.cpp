#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <thread>

#include "comm/store/key_table.h"
#include "comm/store/socket.h"
#include "comm/store/tcp_protocol.h"
#include "comm/watchdog.h"
#include "ddp/core/error.h"

namespace ddp::comm {
namespace {

using protocol::Operation;
using protocol::Status;

struct Client {
  Descriptor socket;
  Bytes in;
  Bytes out;
  bool greeted = false;
  // A get that waits for its key.
  std::optional<std::string> waiting_key;
  Clock::time_point waiting_until{};
};

Endpoint wildcard(int family, std::uint16_t port) {
  Endpoint endpoint;
  endpoint.address.ss_family = static_cast<sa_family_t>(family);
  endpoint.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  set_port(endpoint, port);
  return endpoint;  // all zero is "any address" in both families
}

bool absent(int error) { return error == EAFNOSUPPORT || error == EADDRNOTAVAIL || error == EPROTONOSUPPORT; }

}  // namespace

struct TCPStoreServer::Impl {
  std::vector<Descriptor> listeners;
  Descriptor wake;
  std::uint16_t port = 0;
  KeyTable table;
  std::list<Client> clients;
  std::thread thread;

  void listen_on(const std::string& host, std::uint16_t wanted);
  void serve();
  void accept_from(const Descriptor& listener);
  bool read_from(Client& client);
  bool write_to(Client& client);
  bool handle(Client& client);
  bool answer(Client& client, Operation operation, std::string_view key, std::span<const std::uint8_t> value,
              std::int64_t number);
  void changed(std::string_view key);
  static void reply(Client& client, Status status, std::int64_t number, std::span<const std::uint8_t> value = {});
};

void TCPStoreServer::Impl::listen_on(const std::string& host, std::uint16_t wanted) {
  const std::string shown = host.empty() ? "*" : host;
  const auto refuse = [&](int error) {
    if (error == EADDRINUSE) {
      ddp::detail::fail<CommError>("cannot serve the store at ", host_port(shown, wanted),
                                   ": the port is in use by another process; choose another MASTER_PORT");
    }
    ddp::detail::fail<CommError>("cannot serve the store at ", host_port(shown, wanted), ": ", errno_text(error));
  };
  int error = 0;
  if (host.empty()) {
    Descriptor listener = try_listen(wildcard(AF_INET6, wanted), true, error);
    if (!listener && absent(error)) listener = try_listen(wildcard(AF_INET, wanted), false, error);
    if (!listener) refuse(error);
    port = port_of(listener);
    listeners.push_back(std::move(listener));
    return;
  }
  // A name may stand for several addresses ("localhost" for ::1 and 127.0.0.1): all of them, on one port.
  constexpr int kTries = 16;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    listeners.clear();
    port = wanted;
    bool retry = false;
    for (Endpoint endpoint : resolve(host, wanted, Clock::now() + std::chrono::seconds(5))) {
      set_port(endpoint, port);
      Descriptor listener = try_listen(endpoint, false, error);
      if (!listener) {
        if (absent(error)) continue;
        retry = wanted == 0 && error == EADDRINUSE;  // free on the first address, taken on the next
        if (retry) break;
        refuse(error);
      }
      port = port_of(listener);
      listeners.push_back(std::move(listener));
    }
    if (retry) continue;
    if (listeners.empty()) refuse(error);
    return;
  }
  refuse(EADDRINUSE);
}

void TCPStoreServer::Impl::serve() {
  std::vector<pollfd> entries;
  while (true) {
    entries.clear();
    entries.push_back({.fd = wake.get(), .events = POLLIN, .revents = 0});
    for (const auto& listener : listeners) entries.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
    auto next = Clock::time_point::max();
    for (const auto& client : clients) {
      const short events = static_cast<short>(POLLIN | (client.out.empty() ? 0 : POLLOUT));
      entries.push_back({.fd = client.socket.get(), .events = events, .revents = 0});
      if (client.waiting_key) next = std::min(next, client.waiting_until);
    }
    const int timeout = next == Clock::time_point::max() ? -1 : poll_timeout(next);
    if (::poll(entries.data(), entries.size(), timeout) < 0 && errno != EINTR) return;
    if (entries.front().revents != 0) return;

    const auto now = Clock::now();
    std::size_t i = 1 + listeners.size();
    for (auto it = clients.begin(); it != clients.end(); ++i) {
      Client& client = *it;
      bool good = true;
      if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) good = read_from(client);
      if (good && client.waiting_key && client.waiting_until <= now) {
        client.waiting_key.reset();
        reply(client, Status::timeout, 0);
      }
      it = good ? std::next(it) : clients.erase(it);
    }
    // Replies may have been added to any client by another's request.
    for (auto it = clients.begin(); it != clients.end();) it = write_to(*it) ? std::next(it) : clients.erase(it);
    for (std::size_t l = 0; l < listeners.size(); ++l) {
      if (entries[1 + l].revents != 0) accept_from(listeners[l]);
    }
  }
}

void TCPStoreServer::Impl::accept_from(const Descriptor& listener) {
  Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return;
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Client& client = clients.emplace_back();
  client.socket = std::move(socket);
  client.out.assign(protocol::kHello.begin(), protocol::kHello.end());
}

bool TCPStoreServer::Impl::read_from(Client& client) {
  std::uint8_t chunk[65536];
  while (true) {
    const ssize_t got = ::recv(client.socket.get(), chunk, sizeof chunk, 0);
    if (got > 0) {
      client.in.insert(client.in.end(), chunk, chunk + got);
      if (!handle(client)) return false;
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else {
      return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }
}

bool TCPStoreServer::Impl::write_to(Client& client) {
  std::size_t done = 0;
  while (done < client.out.size()) {
    const ssize_t sent = ::send(client.socket.get(), client.out.data() + done, client.out.size() - done, MSG_NOSIGNAL);
    if (sent > 0) {
      done += static_cast<std::size_t>(sent);
    } else if (sent < 0 && errno == EINTR) {
      continue;
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      break;
    } else {
      return false;
    }
  }
  client.out.erase(client.out.begin(), client.out.begin() + static_cast<std::ptrdiff_t>(done));
  return true;
}

// Carries out what has come in completely. False for somebody who does not speak the protocol.
bool TCPStoreServer::Impl::handle(Client& client) {
  std::size_t at = 0;
  const auto left = [&] { return client.in.size() - at; };
  if (!client.greeted) {
    if (left() < protocol::kHello.size()) return true;
    if (!std::equal(protocol::kHello.begin(), protocol::kHello.end(), client.in.begin())) return false;
    client.greeted = true;
    at += protocol::kHello.size();
  }
  while (left() >= protocol::kRequestBytes) {
    const std::uint8_t* header = client.in.data() + at;
    const auto key_bytes = protocol::take<std::uint32_t>(header + 1);
    const auto value_bytes = protocol::take<std::uint32_t>(header + 5);
    if (key_bytes == 0 || key_bytes > kMaxKeyBytes || value_bytes > kMaxValueBytes || client.waiting_key) return false;
    if (left() < protocol::kRequestBytes + key_bytes + value_bytes) break;
    const std::string key(reinterpret_cast<const char*>(header + protocol::kRequestBytes), key_bytes);
    const std::span value(header + protocol::kRequestBytes + key_bytes, value_bytes);
    if (!answer(client, static_cast<Operation>(header[0]), key, value, protocol::take<std::int64_t>(header + 9))) {
      return false;
    }
    at += protocol::kRequestBytes + key_bytes + value_bytes;
  }
  client.in.erase(client.in.begin(), client.in.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

bool TCPStoreServer::Impl::answer(Client& client, Operation operation, std::string_view key,
                                  std::span<const std::uint8_t> value, std::int64_t number) {
  switch (operation) {
    case Operation::set:
      table.set(key, value);
      reply(client, Status::ok, 0);
      changed(key);
      return true;
    case Operation::get:
      if (const Bytes* found = table.find(key)) {
        reply(client, Status::ok, 0, *found);
      } else if (number <= 0) {
        reply(client, Status::timeout, 0);
      } else {
        client.waiting_key = key;
        client.waiting_until = deadline_after(std::chrono::milliseconds(number));
      }
      return true;
    case Operation::add:
      try {
        reply(client, Status::ok, table.add(key, number));
        changed(key);
      } catch (const Error&) {
        reply(client, Status::refused, 0);  // holds no number
      }
      return true;
    case Operation::set_if_absent: {
      const Bytes standing = table.set_if_absent(key, value);
      reply(client, Status::ok, 0, standing);
      changed(key);
      return true;
    }
    case Operation::check:
      reply(client, Status::ok, table.find(key) != nullptr ? 1 : 0);
      return true;
    case Operation::erase:
      reply(client, Status::ok, table.erase(key) ? 1 : 0);
      return true;
  }
  return false;
}

void TCPStoreServer::Impl::changed(std::string_view key) {
  const Bytes* value = table.find(key);
  for (Client& client : clients) {
    if (!client.waiting_key || *client.waiting_key != key) continue;
    client.waiting_key.reset();
    reply(client, Status::ok, 0, *value);
  }
}

void TCPStoreServer::Impl::reply(Client& client, Status status, std::int64_t number,
                                 std::span<const std::uint8_t> value) {
  std::uint8_t header[protocol::kReplyBytes];
  header[0] = static_cast<std::uint8_t>(status);
  protocol::put(header + 1, static_cast<std::uint32_t>(value.size()));
  protocol::put(header + 5, number);
  client.out.insert(client.out.end(), std::begin(header), std::end(header));
  client.out.insert(client.out.end(), value.begin(), value.end());
}

TCPStoreServer::TCPStoreServer(const std::string& host, std::uint16_t port) : impl_(std::make_unique<Impl>()) {
  impl_->listen_on(host.empty() ? host : checked_host(host), port);
  impl_->wake = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  DDP_CHECK(impl_->wake, CommError, "eventfd: ", errno_text(errno));
  impl_->thread = start_library_thread([impl = impl_.get()] { impl->serve(); });
}

TCPStoreServer::~TCPStoreServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(impl_->wake.get(), &one, sizeof one);
  impl_->thread.join();
}

std::uint16_t TCPStoreServer::port() const { return impl_->port; }

}  // namespace ddp::comm
