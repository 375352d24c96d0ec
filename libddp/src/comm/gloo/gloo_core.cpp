#include "comm/gloo/gloo_core.h"

#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <exception>

#include "comm/signature.h"

namespace ddp::comm {
namespace {

/// Lets Gloo's rendezvous use a Store, within one deadline.
class RendezvousStore final : public gloo::rendezvous::Store {
 public:
  RendezvousStore(comm::Store& store, Clock::time_point deadline) : store_(store), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set("connect/" + key, std::span(reinterpret_cast<const std::uint8_t*>(data.data()), data.size()));
  }
  std::vector<char> get(const std::string& key) override {
    const Bytes bytes = store_.get("connect/" + key, remaining());
    return {bytes.begin(), bytes.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) store_.get("connect/" + key, remaining());
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& /*timeout*/) override { wait(keys); }

 private:
  std::chrono::milliseconds remaining() const {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()),
                    std::chrono::milliseconds(1));
  }
  comm::Store& store_;
  const Clock::time_point deadline_;
};

}  // namespace

GlooCore::GlooCore(const GlooConfig& config)
    : StoreCore(config.rank, config.size, config.timeout, config.store, config.serves_store), config_(config) {}

void GlooCore::connect(std::shared_ptr<gloo::transport::Device> device) {
  // On a thread of our own: Gloo's I/O thread inherits its signal mask, and a write to a vanished peer must not
  // raise SIGPIPE in the caller's thread.
  std::exception_ptr error;
  std::thread connector = start_library_thread([&] {
    try {
      device_ = std::move(device);
      if (!device_) {
        gloo::transport::tcp::attr attr;
        if (config_.interface.empty()) {
          attr.hostname = config_.address;
        } else {
          attr.iface = config_.interface;
        }
        device_ = gloo::transport::tcp::CreateDevice(attr);
      }
      const auto context = std::make_shared<gloo::rendezvous::Context>(rank(), size());
      // Gloo waits five times as long for a connection; it does so only for a peer that vanishes right now.
      constexpr std::chrono::milliseconds kLongest{60'000};
      context->setTimeout(std::max(std::min(config_.timeout, kLongest) / 5, std::chrono::milliseconds(1)));
      RendezvousStore store(*config_.store, deadline_after(config_.timeout));
      context->connectFullMesh(store, device_);
      context_ = context;
    } catch (...) {
      error = std::current_exception();
    }
  });
  connector.join();
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& reason) {
    ddp::detail::fail<CommError>("rank ", rank(), " of ", size(), " could not connect to its peers from ",
                                 config_.interface.empty() ? config_.address : config_.interface, ": ", reason.what());
  }
}

void GlooCore::enter(gloo::transport::UnboundBuffer* buffer) {
  const std::lock_guard lock(buffer_mutex_);
  buffers_.insert(buffer);
  if (!interrupted_) return;
  buffer->abortWaitRecv();
  buffer->abortWaitSend();
}

void GlooCore::leave(gloo::transport::UnboundBuffer* buffer) {
  const std::lock_guard lock(buffer_mutex_);
  buffers_.erase(buffer);
}

std::vector<int> GlooCore::lost_peers() {
  // Sending on a broken connection throws at once; on a healthy one the notice goes unheeded, for the group dies.
  std::vector<int> lost;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    char nothing = 0;
    const auto buffer = context_->createUnboundBuffer(&nothing, 1);
    try {
      buffer->send(peer, ~std::uint64_t{0}, 0, 1);
    } catch (const std::exception&) {
      lost.push_back(peer);
    }
  }
  return lost;
}

Failure GlooCore::explain(const Collective& collective, const std::string& transport_text) {
  std::string text = "the transport failed";
  if (const auto lost = lost_peers(); !lost.empty()) text = concat("lost the connection to ", list_of_ranks(lost));
  // A peer that gave up says why before it closes its connections.
  if (const std::string first = first_error(); !first.empty()) text += concat("; first error: ", first);
  return {.timeout = false, .text = in_collective(collective, rank(), size(), concat(text, " [", transport_text, "]"))};
}

void GlooCore::disconnect() noexcept {
  if (!context_) return;
  try {
    context_->closeConnections();
  } catch (const std::exception&) {
    // Already closed.
  }
}

void GlooCore::on_death(const Failure& failure) {
  {
    const std::lock_guard lock(buffer_mutex_);
    interrupted_ = true;
    for (auto* buffer : buffers_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }
  StoreCore::on_death(failure);
}

}  // namespace ddp::comm
