#include "comm/gloo/exchange.h"

#include <algorithm>

#include "comm/signature.h"

namespace ddp::comm {
namespace {

// The watchdog ends late collectives by name; Gloo's own time-out is only for when it cannot.
constexpr std::chrono::milliseconds kGrace{2000};

template <class Action>
auto guarded(const Action& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw TransportError{.text = text, .timeout = text.find("Timed out") != std::string::npos};
  }
}

// lane 8 | sequence 12 | hash 40 | phase 4
std::uint64_t make_slot(std::uint64_t lane, std::uint64_t sequence, std::uint64_t hash) {
  return (lane << 56) | ((sequence & 0xfffU) << 44) | ((hash >> 24) << 4);
}

constexpr std::uint64_t kMessageLane = 0xff;

}  // namespace

Exchange::Exchange(GlooCore& core, const AsyncWork& work, LaneMemory& memory)
    : core_(core), work_(work), memory_(memory) {
  const Collective& what = work.collective();
  const std::uint64_t hash = signature_hash(what);
  if (is_point_to_point(what.kind)) {
    // The tag, then the number of the message under that tag.
    slot_ = make_slot(kMessageLane, what.sequence, hash ^ (static_cast<std::uint64_t>(what.tag + 1) << 24));
  } else {
    slot_ = make_slot(static_cast<std::uint64_t>(what.options.lane), what.sequence, hash);
    agreement_slot_ = make_slot(static_cast<std::uint64_t>(what.options.lane), what.sequence, 0) | 15U;
  }
}

std::chrono::milliseconds Exchange::patience() const { return work_.remaining() + kGrace; }

Block::Block(const Exchange& exchange, void* data, std::size_t bytes)
    : exchange_(exchange), buffer_(exchange.core().context().createUnboundBuffer(data, bytes)) {
  exchange_.core().enter(buffer_.get());
}

Block::~Block() { exchange_.core().leave(buffer_.get()); }

void Block::send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  guarded([&] { buffer_->send(to, slot, offset, bytes); });
  ++pending_send_;
}

void Block::recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) {
  guarded([&] { buffer_->recv(from, slot, offset, bytes); });
  ++pending_recv_;
}

void Block::wait_recv() {
  int from = -1;  // of several completions Gloo gives the last one's sender each time
  if (!guarded([&] { return buffer_->waitRecv(&from, exchange_.patience()); })) throw Interrupted{};
  --pending_recv_;
}

void Block::wait_all_recv() {
  while (pending_recv_ > 0) wait_recv();
}

void Block::wait_all_send() {
  for (; pending_send_ > 0; --pending_send_) {
    int to = -1;
    if (!guarded([&] { return buffer_->waitSend(&to, exchange_.patience()); })) throw Interrupted{};
  }
}

}  // namespace ddp::comm
