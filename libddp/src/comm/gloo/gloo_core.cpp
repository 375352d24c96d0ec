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

constexpr std::chrono::milliseconds kLongestPause{4000};
// After a failure, for the peers to read the reason before this process and the store in it may end.
constexpr std::chrono::milliseconds kLinger{1000};

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += concat(text.empty() ? "rank " : ", rank ", rank);
  return text;
}

}  // namespace

GlooCore::GlooCore(const GlooConfig& config) : GroupCore(config.rank, config.size, config.timeout), config_(config) {}

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
  if (const auto lost = lost_peers(); !lost.empty()) text = concat("lost the connection to ", list_of(lost));
  // A peer that gave up says why before it closes its connections.
  try {
    if (store().check("error")) text += concat("; first error: ", store().get_text("error", std::chrono::seconds(1)));
  } catch (const Error&) {
    // The store may have gone with the peer.
  }
  return {.timeout = false, .text = in_collective(collective, rank(), size(), concat(text, " [", transport_text, "]"))};
}

std::string GlooCore::late_key(const Collective& collective) const {
  if (!is_point_to_point(collective.kind)) {
    return concat("late/", collective.options.lane, "/", collective.sequence, "/");
  }
  const bool sending = collective.kind == CollectiveKind::send;
  return concat("late/message/", sending ? rank() : collective.root, "-", sending ? collective.root : rank(), "/",
                collective.tag, "/", collective.sequence, "/");
}

std::vector<int> GlooCore::partners(const Collective& collective) const {
  if (is_point_to_point(collective.kind)) return {collective.root};
  std::vector<int> peers;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) peers.push_back(peer);
  }
  return peers;
}

std::string GlooCore::missing(const AsyncWork& work) {
  const std::lock_guard lock(late_mutex_);
  const auto found = late_.find(late_key(work.collective()));
  if (found == late_.end() || !found->second.published) return {};
  std::vector<int> absent;
  for (const int peer : partners(work.collective())) {
    if (!found->second.arrived.contains(peer)) absent.push_back(peer);
  }
  return absent.empty() ? "; all ranks have arrived, the data has not" : concat("; not arrived: ", list_of(absent));
}

void GlooCore::on_late(const std::shared_ptr<AsyncWork>& work) {
  const auto watchdog = watchdog_.lock();
  if (!watchdog) return;
  const auto now = Clock::now();
  const std::lock_guard lock(late_mutex_);
  // What has ended since leaves no entry behind.
  for (auto it = late_.begin(); it != late_.end();) {
    const auto other = it->second.work.lock();
    if (it->second.talking || (other && !other->is_completed())) {
      ++it;
      continue;
    }
    watchdog->talk([self = shared_from_this(), this, key = concat(it->first, rank())] {
      try {
        store().erase(key);
      } catch (const Error&) {
        // Without a store there is nothing to tidy up.
      }
    });
    it = late_.erase(it);
  }
  Late& late = late_[late_key(work->collective())];
  if (late.talking || now < late.next_talk) return;
  late.work = work;
  late.talking = true;
  watchdog->talk([self = shared_from_this(), this, work] { talk_about(work); });
}

void GlooCore::talk_about(const std::shared_ptr<AsyncWork>& work) {
  const std::string key = late_key(work->collective());
  const std::string mine = describe(work->collective());
  std::set<int> arrived;
  std::string difference;
  bool published = false;
  try {
    if (!work->is_completed()) {
      store().set_text(concat(key, rank()), mine);
      published = true;
      for (const int peer : partners(work->collective())) {
        const std::string peer_key = concat(key, peer);
        if (!store().check(peer_key)) continue;
        arrived.insert(peer);
        const std::string theirs = store().get_text(peer_key, std::chrono::seconds(1));
        if (theirs != mine && difference.empty()) {
          difference = concat("the ranks differ: rank ", peer, " called ", theirs, ", rank ", rank(), " called ", mine);
        }
      }
    }
  } catch (const Error&) {
    // The deadline holds without the store; only the names of missing ranks are lost.
  }
  {
    const std::lock_guard lock(late_mutex_);
    Late& late = late_[key];
    late.talking = false;
    late.published = late.published || published;
    late.arrived.merge(arrived);
    late.next_talk = Clock::now() + late.pause;
    late.pause = std::min(late.pause * 2, kLongestPause);
  }
  if (!difference.empty()) {
    const Failure failure{.timeout = false, .text = in_collective(work->collective(), rank(), size(), difference)};
    work->fail(failure);
    die(failure);
  }
}

void GlooCore::publish_death(const std::string& text) {
  try {
    const Bytes bytes(text.begin(), text.end());
    store().set_if_absent("error", bytes);
  } catch (const Error&) {
    // The peers then only see the connection go.
  }
  if (context_) {
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // Already closed.
    }
  }
  try {
    std::int64_t told = store().add("error/told", 1);
    const auto until = Clock::now() + kLinger;
    while (config_.serves_store && told < size() && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      told = store().add("error/told", 0);
    }
  } catch (const Error&) {
    // Nobody can ask any more.
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
  if (const auto watchdog = watchdog_.lock()) {
    watchdog->talk([self = shared_from_this(), this, text = failure.text] { publish_death(text); });
  } else {
    // The caller has woken up and dropped the group already; this thread is one that the watchdog waits for.
    publish_death(failure.text);
  }
}

}  // namespace ddp::comm
