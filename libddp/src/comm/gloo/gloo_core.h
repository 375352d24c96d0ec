#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "comm/gloo/make_group.h"
#include "comm/group_core.h"

namespace ddp::comm {

/// A Gloo group's connections and what is known of its peers.
///
/// A Gloo context is dead after any error. So the first error ends the group: it is published in the store under
/// "error", then the connections are closed, which makes the peers' calls fail; they look the reason up.
///
/// A collective that is late is published under "late/<key>/<rank>". Reading the peers' entries tells which ranks
/// are not there, and whether they called something else.
class GlooCore final : public GroupCore {
 public:
  explicit GlooCore(const GlooConfig& config);

  /// Connects all ranks. `device` may be another group's, to share its thread.
  void connect(std::shared_ptr<gloo::transport::Device> device);
  const GlooConfig& config() const { return config_; }
  const std::shared_ptr<gloo::transport::Device>& device() const { return device_; }
  gloo::rendezvous::Context& context() { return *context_; }
  Store& store() { return *config_.store; }

  /// For the watchdog's talking thread; must not own the watchdog.
  void set_watchdog(const std::shared_ptr<Watchdog>& watchdog) { watchdog_ = watchdog; }

  /// Buffers with waits that death must interrupt.
  void enter(gloo::transport::UnboundBuffer* buffer);
  void leave(gloo::transport::UnboundBuffer* buffer);

  /// The failure that a transport error means: peers by rank, and the first error of the group if it is known.
  /// May ask the store.
  Failure explain(const Collective& collective, const std::string& transport_text);
  /// Where late ranks meet: the same on all ranks of one collective or message.
  std::string late_key(const Collective& collective) const;

 protected:
  std::string missing(const AsyncWork& work) override;
  void on_death(const Failure& failure) override;
  void on_late(const std::shared_ptr<AsyncWork>& work) override;

 private:
  struct Late {
    std::weak_ptr<AsyncWork> work;
    bool published = false;
    bool talking = false;
    std::set<int> arrived;
    Clock::time_point next_talk{};
    std::chrono::milliseconds pause{250};
  };

  std::vector<int> lost_peers();
  std::vector<int> partners(const Collective& collective) const;
  void talk_about(const std::shared_ptr<AsyncWork>& work);
  void publish_death(const std::string& text);

  const GlooConfig config_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::weak_ptr<Watchdog> watchdog_;

  std::mutex buffer_mutex_;
  std::set<gloo::transport::UnboundBuffer*> buffers_;
  bool interrupted_ = false;

  std::mutex late_mutex_;
  std::map<std::string, Late> late_;
};

}  // namespace ddp::comm
