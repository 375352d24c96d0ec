#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/gloo/gloo_core.h"
#include "comm/gloo/shared_lane.h"

namespace ddp::comm {

/// Thrown through an algorithm when the group died of something else meanwhile.
struct Interrupted {};
/// Thrown through an algorithm when the transport failed.
struct TransportError {
  std::string text;
  bool timeout = false;
};

/// Memory of a lane that collectives use in turn; grows, never shrinks.
class Scratch {
 public:
  std::byte* reserve(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      size_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
};

/// What the collectives of one lane use in turn.
struct LaneMemory {
  Scratch scratch;
  Scratch staging;
  SharedLane shared;
};

/// The messages of one collective. They match by slot, which holds lane, sequence and a hash of what was called
/// (40 bits): ranks that call different things, or different sizes, never get each other's data; they wait, and
/// the late check or the deadline ends them. (Gloo itself would end the process when a message is longer than the
/// receiver expects, and say nothing when it is shorter.) Messages of one slot between two ranks keep their order.
class Exchange {
 public:
  Exchange(GlooCore& core, const AsyncWork& work, LaneMemory& memory);

  GlooCore& core() const { return core_; }
  const Collective& collective() const { return work_.collective(); }
  int rank() const { return core_.rank(); }
  int size() const { return core_.size(); }
  Scratch& scratch() const { return memory_.scratch; }
  Scratch& staging() const { return memory_.staging; }
  SharedLane& shared() const { return memory_.shared; }
  /// `phase` below 8 tells uses apart inside one collective.
  std::uint64_t slot(unsigned phase) const { return slot_ | phase; }
  /// Not dependent on what was called: for comparing just that.
  std::uint64_t agreement_slot() const { return agreement_slot_; }
  std::chrono::milliseconds patience() const;

 private:
  GlooCore& core_;
  const AsyncWork& work_;
  LaneMemory& memory_;
  std::uint64_t slot_ = 0;
  std::uint64_t agreement_slot_ = 0;
};

/// Memory that takes part in an exchange. At the end of its life nothing of it may be under way, unless the group
/// is dead.
class Block {
 public:
  Block(const Exchange& exchange, void* data, std::size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes);
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes);
  /// Waits for one receive, whichever comes first.
  void wait_recv();
  void wait_all_recv();
  void wait_all_send();

 private:
  const Exchange& exchange_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  int pending_send_ = 0;
  int pending_recv_ = 0;
};

}  // namespace ddp::comm
