#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "comm/gloo/make_group.h"
#include "comm/store_core.h"

namespace ddp::comm {

/// A Gloo group's connections and what is known of its peers.
///
/// A Gloo context is dead after any error. So the first error ends the group: it is published in the store, then the
/// connections are closed, which makes the peers' calls fail; they look the reason up.
class GlooCore final : public StoreCore {
 public:
  explicit GlooCore(const GlooConfig& config);

  /// Connects all ranks. `device` may be another group's, to share its thread.
  void connect(std::shared_ptr<gloo::transport::Device> device);
  const GlooConfig& config() const { return config_; }
  const std::shared_ptr<gloo::transport::Device>& device() const { return device_; }
  gloo::rendezvous::Context& context() { return *context_; }

  /// Buffers with waits that death must interrupt.
  void enter(gloo::transport::UnboundBuffer* buffer);
  void leave(gloo::transport::UnboundBuffer* buffer);

  /// The failure that a transport error means: peers by rank, and the first error of the group if it is known.
  /// May ask the store.
  Failure explain(const Collective& collective, const std::string& transport_text);

 protected:
  void on_death(const Failure& failure) override;
  void disconnect() noexcept override;

 private:
  std::vector<int> lost_peers();

  const GlooConfig config_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::rendezvous::Context> context_;

  std::mutex buffer_mutex_;
  std::set<gloo::transport::UnboundBuffer*> buffers_;
  bool interrupted_ = false;
};

}  // namespace ddp::comm
