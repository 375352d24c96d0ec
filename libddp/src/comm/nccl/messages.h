#pragma once

#include <map>
#include <memory>
#include <utility>

#include "comm/nccl/nccl_core.h"

namespace ddp::comm {

/// Messages between two ranks over NCCL, which knows no tags: its sends and receives of two ranks match by order. So
/// the two agree on the order over the store, message by message: the receiver publishes what it wants, the sender says
/// which of those goes next, and both queue it then. Each direction between two ranks has a communicator of its own,
/// made when it is first used, and a thread on either side; messages hold up no collective and no message of others.
///
/// That costs store calls for each message (about a millisecond). What a training step moves belongs in collectives.
class Messages {
 public:
  explicit Messages(std::shared_ptr<NcclCore> core);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Of a message that is admitted already. Does not block.
  void post(std::shared_ptr<StreamWork> work);

 private:
  class Channel;
  const std::shared_ptr<NcclCore> core_;
  std::map<std::pair<int, bool>, std::unique_ptr<Channel>> channels_;  // by peer and whether this rank sends
};

}  // namespace ddp::comm
