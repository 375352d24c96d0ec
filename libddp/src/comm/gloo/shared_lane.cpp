#include "comm/gloo/shared_lane.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "comm/gloo/exchange.h"

namespace ddp::comm {
namespace {

constexpr unsigned kOffers = 4;
constexpr unsigned kVerdicts = 5;

/// What a rank tells its peers about its memory.
struct Offer {
  SharedMemory::Secret secret{};
  std::int32_t process = 0;
  std::int32_t descriptor = -1;  // -1: none
};

/// Sends `mine` to every peer and gets theirs, by rank.
template <class T>
std::vector<T> gather(const Exchange& exchange, T mine, unsigned phase) {
  std::vector<T> all(static_cast<std::size_t>(exchange.size()));
  Block incoming(exchange, all.data(), all.size() * sizeof(T));
  Block outgoing(exchange, &mine, sizeof(T));
  for (int peer = 0; peer < exchange.size(); ++peer) {
    if (peer == exchange.rank()) continue;
    incoming.recv(peer, exchange.slot(phase), static_cast<std::size_t>(peer) * sizeof(T), sizeof(T));
    outgoing.send(peer, exchange.slot(phase), 0, sizeof(T));
  }
  incoming.wait_all_recv();
  outgoing.wait_all_send();
  all[static_cast<std::size_t>(exchange.rank())] = mine;
  return all;
}

}  // namespace

bool SharedLane::available(const Exchange& exchange) {
  if (state_ == State::unknown) {
    state_ = agree(exchange) ? State::shared : State::separate;
    if (state_ == State::separate) memory_.clear();
  }
  return state_ == State::shared;
}

bool SharedLane::agree(const Exchange& exchange) {
  Offer mine;
  std::optional<SharedMemory> own;
  if (exchange.core().config().shared_memory) {
    std::random_device random;
    for (std::uint64_t& word : mine.secret) word = (static_cast<std::uint64_t>(random()) << 32) | random();
    own = SharedMemory::create(2 * kAreaBytes, mine.secret);
    mine.process = getpid();
    if (own) mine.descriptor = own->descriptor();
  }
  const std::vector<Offer> offers = gather(exchange, mine, kOffers);
  bool all = true;
  for (int rank = 0; rank < exchange.size() && all; ++rank) {
    const Offer& offer = offers[static_cast<std::size_t>(rank)];
    std::optional<SharedMemory> memory;
    if (rank == exchange.rank()) {
      memory = std::exchange(own, std::nullopt);
    } else if (offer.descriptor >= 0) {
      memory = SharedMemory::open(offer.process, offer.descriptor, 2 * kAreaBytes, offer.secret);
    }
    all = memory.has_value();
    if (all) memory_.push_back(std::move(*memory));
  }
  // Memory of this rank must stay open until every peer has looked at it, also when it is of no use.
  const std::vector<char> verdicts = gather(exchange, static_cast<char>(all), kVerdicts);
  all = std::ranges::all_of(verdicts, [](char verdict) { return verdict != 0; });
  if (all) memory_[static_cast<std::size_t>(exchange.rank())].close_descriptor();
  return all;
}

}  // namespace ddp::comm
