#include <algorithm>
#include <mutex>
#include <thread>

#include "comm/store/socket.h"
#include "comm/store/store_checks.h"
#include "comm/store/tcp_protocol.h"
#include "core/observer.h"
#include "ddp/core/error.h"

namespace ddp::comm {
namespace {

using protocol::Operation;
using protocol::Status;

// For the server's answer to what it can do at once, and beyond the wait of a get.
constexpr std::chrono::milliseconds kAnswerTime{15'000};

struct Reply {
  Status status = Status::ok;
  std::int64_t number = 0;
  Bytes value;
};

}  // namespace

struct TCPStore::Impl {
  std::string host;
  std::uint16_t port = 0;
  std::mutex mutex;
  // One connection for each call under way at once, so that a waiting get holds up nobody.
  std::vector<Descriptor> idle;

  std::string where() const { return host_port(host, port); }
  Descriptor connect(Clock::time_point deadline, std::chrono::milliseconds limit, std::chrono::milliseconds retry);
  Descriptor attempt(const std::vector<Endpoint>& endpoints, Clock::time_point deadline, std::string& reason) const;
  Reply call(Operation operation, std::string_view key, std::span<const std::uint8_t> value, std::int64_t number,
             std::chrono::milliseconds wait);
};

Descriptor TCPStore::Impl::attempt(const std::vector<Endpoint>& endpoints, Clock::time_point deadline,
                                   std::string& reason) const {
  for (const Endpoint& endpoint : endpoints) {
    // An address that does not answer must not use up the time of the others.
    const auto limit = endpoints.size() == 1 ? deadline : std::min(deadline, Clock::now() + std::chrono::seconds(3));
    Descriptor socket = try_connect(endpoint, limit, reason);
    if (!socket) continue;
    std::array<char, protocol::kHello.size()> hello{};
    if (!send_all(socket, protocol::kHello.data(), protocol::kHello.size(), deadline, reason)) continue;
    if (!recv_all(socket, hello.data(), hello.size(), deadline, reason)) {
      reason = concat("no greeting of a store: ", reason);
      continue;
    }
    DDP_CHECK(hello == protocol::kHello, CommError, "what listens at ", where(), " is not a store of this library");
    return socket;
  }
  return {};
}

// One attempt may last to the deadline; refused ones are repeated for `retry`.
Descriptor TCPStore::Impl::connect(Clock::time_point deadline, std::chrono::milliseconds limit,
                                   std::chrono::milliseconds retry) {
  const auto give_up = std::min(deadline, deadline_after(retry));
  const auto endpoints = resolve(host, port, deadline);
  std::string reason;
  auto pause = std::chrono::milliseconds(10);
  while (true) {
    if (Descriptor socket = attempt(endpoints, deadline, reason)) return socket;
    const auto now = Clock::now();
    DDP_CHECK(now < give_up, TimeoutError, "no connection to the store at ", where(), " within ",
              (now < deadline ? retry : limit).count(), " ms: ", reason);
    std::this_thread::sleep_until(std::min(give_up, now + pause));
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

Reply TCPStore::Impl::call(Operation operation, std::string_view key, std::span<const std::uint8_t> value,
                           std::int64_t number, std::chrono::milliseconds wait) {
  check_key(key);
  check_value(key, value);
  Descriptor socket;
  {
    const std::lock_guard lock(mutex);
    if (!idle.empty()) {
      socket = std::move(idle.back());
      idle.pop_back();
    }
  }
  const auto deadline = deadline_after(wait + kAnswerTime);
  // A server that was there and refuses now has gone for good: whoever ends after a failure must not wait for it.
  if (!socket) socket = connect(std::min(deadline, Clock::now() + kAnswerTime), kAnswerTime, std::chrono::seconds(1));

  Bytes request(protocol::kRequestBytes);
  request[0] = static_cast<std::uint8_t>(operation);
  protocol::put(request.data() + 1, static_cast<std::uint32_t>(key.size()));
  protocol::put(request.data() + 5, static_cast<std::uint32_t>(value.size()));
  protocol::put(request.data() + 9, number);
  request.insert(request.end(), key.begin(), key.end());
  request.insert(request.end(), value.begin(), value.end());

  std::string reason;
  std::uint8_t header[protocol::kReplyBytes];
  Reply reply;
  bool good = send_all(socket, request.data(), request.size(), deadline, reason) &&
              recv_all(socket, header, sizeof header, deadline, reason);
  if (good) {
    reply.status = static_cast<Status>(header[0]);
    reply.number = protocol::take<std::int64_t>(header + 5);
    reply.value.resize(protocol::take<std::uint32_t>(header + 1));
    good = recv_all(socket, reply.value.data(), reply.value.size(), deadline, reason);
  }
  DDP_CHECK(good, StoreGone, "the store at ", where(), " is gone (key '", key, "'): ", reason);
  DDP_CHECK(reply.status != Status::refused, CommError, "store key '", key, "' at ", where(),
            " holds something else than the whole number that add needs");
  const std::lock_guard lock(mutex);
  idle.push_back(std::move(socket));
  return reply;
}

TCPStore::TCPStore(const std::string& host, std::uint16_t port, std::chrono::milliseconds connect_timeout,
                   std::source_location where)
    : impl_(std::make_unique<Impl>()) {
  DDP_CHECK(port != 0, InvalidArgument, "store port 0 is outside [1, 65535]");
  impl_->host = checked_host(host);
  impl_->port = port;
  const core::BlockingScope scope("comm::TCPStore::connect", Device::cpu(), where);
  impl_->idle.push_back(impl_->connect(deadline_after(connect_timeout), connect_timeout, connect_timeout));
}

TCPStore::~TCPStore() = default;

void TCPStore::set(std::string_view key, std::span<const std::uint8_t> value) {
  impl_->call(Operation::set, key, value, 0, {});
}

Bytes TCPStore::get(std::string_view key, std::chrono::milliseconds timeout, std::source_location where) {
  const core::BlockingScope scope("comm::Store::get", Device::cpu(), where);
  constexpr std::chrono::milliseconds kNone{0};
  constexpr std::chrono::milliseconds kLongest{std::chrono::hours(24 * 365)};
  const auto wait = std::clamp(timeout, kNone, kLongest);
  Reply reply = impl_->call(Operation::get, key, {}, wait.count(), wait);
  DDP_CHECK(reply.status == Status::ok, TimeoutError, describe(), ": key '", key, "' was not set within ",
            timeout.count(), " ms");
  return std::move(reply.value);
}

std::int64_t TCPStore::add(std::string_view key, std::int64_t amount) {
  return impl_->call(Operation::add, key, {}, amount, {}).number;
}

Bytes TCPStore::set_if_absent(std::string_view key, std::span<const std::uint8_t> value) {
  return impl_->call(Operation::set_if_absent, key, value, 0, {}).value;
}

bool TCPStore::check(std::string_view key) { return impl_->call(Operation::check, key, {}, 0, {}).number != 0; }

bool TCPStore::erase(std::string_view key) { return impl_->call(Operation::erase, key, {}, 0, {}).number != 0; }

std::string TCPStore::describe() const { return concat("TCPStore at ", impl_->where()); }

}  // namespace ddp::comm
