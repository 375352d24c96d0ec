#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/gloo/shared_memory.h"

namespace ddp::comm {

class Exchange;

/// A lane's memory that all ranks of the group can read, where they are processes (or threads) of one host. Numbers
/// then go through it, and only one-byte messages through the connections: so that waiting, failing and calls that
/// do not match are what they are without it.
///
/// Each rank writes its own memory only. There are two areas, used in turn block by block: when a rank begins block
/// k, every peer has begun block k-1 and so has read all it needs of block k-2.
class SharedLane {
 public:
  static constexpr std::size_t kAreaBytes = 8 << 20;

  /// Whether all ranks share memory on this lane. The first call asks them, with messages of this collective; the
  /// answer is the same on all ranks and stays.
  bool available(const Exchange& exchange);
  /// The rank's area for the present block.
  std::byte* area(int rank) const { return memory_[static_cast<std::size_t>(rank)].data() + (block_ % 2) * kAreaBytes; }
  void next_block() { ++block_; }

 private:
  enum class State : std::uint8_t { unknown, shared, separate };
  bool agree(const Exchange& exchange);

  State state_ = State::unknown;
  std::vector<SharedMemory> memory_;  // by rank
  std::uint64_t block_ = 0;
};

}  // namespace ddp::comm
