#include "comm/gloo/algorithms.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "comm/gloo/reduction.h"
#include "comm/signature.h"

namespace ddp::comm {
namespace {

std::size_t bytes_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.nbytes()); }

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// Binomial tree: each rank that has the data sends it on to a rank half as far away as before.
void broadcast(const Exchange& exchange) {
  const int size = exchange.size();
  const int root = exchange.collective().root;
  const int place = (exchange.rank() - root + size) % size;
  for (const Tensor& tensor : exchange.collective().outputs) {
    if (bytes_of(tensor) == 0) continue;
    Block block(exchange, tensor.data(), bytes_of(tensor));
    int reach = 1;
    while (reach < size) reach *= 2;
    // The lowest set bit of the place is the distance to where the data comes from.
    int distance = place == 0 ? reach : place & -place;
    if (place != 0) {
      block.recv((place - distance + root) % size, exchange.slot(0), 0, bytes_of(tensor));
      block.wait_all_recv();
    }
    for (distance /= 2; distance > 0; distance /= 2) {
      if (place + distance < size) {
        block.send((place + distance + root) % size, exchange.slot(0), 0, bytes_of(tensor));
      }
    }
    block.wait_all_send();
  }
}

void all_gather(const Exchange& exchange) {
  const Tensor& input = exchange.collective().inputs.front();
  const Tensor& output = exchange.collective().outputs.front();
  const std::size_t row = bytes_of(input);
  auto* rows = static_cast<std::byte*>(output.data());
  Block incoming(exchange, rows, bytes_of(output));
  Block outgoing(exchange, input.data(), row);
  for (int peer = 0; peer < exchange.size(); ++peer) {
    if (peer == exchange.rank()) continue;
    incoming.recv(peer, exchange.slot(0), static_cast<std::size_t>(peer) * row, row);
    outgoing.send(peer, exchange.slot(0), 0, row);
  }
  copy_bytes(rows + static_cast<std::size_t>(exchange.rank()) * row, static_cast<const std::byte*>(input.data()), row);
  incoming.wait_all_recv();
  outgoing.wait_all_send();
}

void gather(const Exchange& exchange) {
  const Tensor& input = exchange.collective().inputs.front();
  const std::size_t row = bytes_of(input);
  const int root = exchange.collective().root;
  if (exchange.rank() != root) {
    Block outgoing(exchange, input.data(), row);
    outgoing.send(root, exchange.slot(0), 0, row);
    outgoing.wait_all_send();
    return;
  }
  const Tensor& output = exchange.collective().outputs.front();
  auto* rows = static_cast<std::byte*>(output.data());
  Block incoming(exchange, rows, bytes_of(output));
  for (int peer = 0; peer < exchange.size(); ++peer) {
    if (peer != root) incoming.recv(peer, exchange.slot(0), static_cast<std::size_t>(peer) * row, row);
  }
  copy_bytes(rows + static_cast<std::size_t>(root) * row, static_cast<const std::byte*>(input.data()), row);
  incoming.wait_all_recv();
}

void scatter(const Exchange& exchange) {
  const Tensor& output = exchange.collective().outputs.front();
  const std::size_t row = bytes_of(output);
  const int root = exchange.collective().root;
  if (exchange.rank() != root) {
    Block incoming(exchange, output.data(), row);
    incoming.recv(root, exchange.slot(0), 0, row);
    incoming.wait_all_recv();
    return;
  }
  const Tensor& input = exchange.collective().inputs.front();
  auto* rows = static_cast<std::byte*>(input.data());
  Block outgoing(exchange, rows, bytes_of(input));
  for (int peer = 0; peer < exchange.size(); ++peer) {
    if (peer != root) outgoing.send(peer, exchange.slot(0), static_cast<std::size_t>(peer) * row, row);
  }
  copy_bytes(static_cast<std::byte*>(output.data()), rows + static_cast<std::size_t>(root) * row, row);
  outgoing.wait_all_send();
}

void all_to_all(const Exchange& exchange) {
  const Tensor& input = exchange.collective().inputs.front();
  const Tensor& output = exchange.collective().outputs.front();
  const std::size_t row = bytes_of(input) / static_cast<std::size_t>(exchange.size());
  Block incoming(exchange, output.data(), bytes_of(output));
  Block outgoing(exchange, input.data(), bytes_of(input));
  for (int peer = 0; peer < exchange.size(); ++peer) {
    const std::size_t offset = static_cast<std::size_t>(peer) * row;
    if (peer == exchange.rank()) {
      copy_bytes(static_cast<std::byte*>(output.data()) + offset, static_cast<const std::byte*>(input.data()) + offset,
                 row);
      continue;
    }
    incoming.recv(peer, exchange.slot(0), offset, row);
    outgoing.send(peer, exchange.slot(0), offset, row);
  }
  incoming.wait_all_recv();
  outgoing.wait_all_send();
}

// Dissemination: after k rounds a rank has heard, directly or not, from the 2^k ranks before it.
void barrier(const Exchange& exchange) {
  const int size = exchange.size();
  std::array<char, 2> bytes{};
  Block block(exchange, bytes.data(), bytes.size());
  for (int distance = 1; distance < size; distance *= 2) {
    block.recv((exchange.rank() - distance + size) % size, exchange.slot(0), 0, 1);
    block.send((exchange.rank() + distance) % size, exchange.slot(0), 1, 1);
    block.wait_all_recv();
    block.wait_all_send();
  }
}

void message(const Exchange& exchange) {
  const Collective& what = exchange.collective();
  const bool sending = what.kind == CollectiveKind::send;
  const Tensor& tensor = sending ? what.inputs.front() : what.outputs.front();
  Block block(exchange, tensor.data(), bytes_of(tensor));
  if (sending) {
    block.send(what.root, exchange.slot(0), 0, bytes_of(tensor));
    block.wait_all_send();
  } else {
    block.recv(what.root, exchange.slot(0), 0, bytes_of(tensor));
    block.wait_all_recv();
  }
}

}  // namespace

void run_exchange(const Exchange& exchange) {
  switch (exchange.collective().kind) {
    case CollectiveKind::all_reduce:
      return exchange_all_reduce(exchange);
    case CollectiveKind::broadcast:
      return broadcast(exchange);
    case CollectiveKind::all_gather:
      return all_gather(exchange);
    case CollectiveKind::reduce_scatter:
      return exchange_reduce_scatter(exchange);
    case CollectiveKind::gather:
      return gather(exchange);
    case CollectiveKind::scatter:
      return scatter(exchange);
    case CollectiveKind::all_to_all:
      return all_to_all(exchange);
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return message(exchange);
    case CollectiveKind::barrier:
      return barrier(exchange);
  }
}

std::string compare_calls(const Exchange& exchange, const std::string& text) {
  constexpr std::size_t kBytes = 512;
  const auto ranks = static_cast<std::size_t>(exchange.size());
  std::vector<char> texts(kBytes * ranks, '\0');
  const auto text_of = [&](std::size_t rank) { return std::string(texts.data() + rank * kBytes); };
  const auto mine = static_cast<std::size_t>(exchange.rank()) * kBytes;
  text.copy(texts.data() + mine, kBytes - 1);
  Block block(exchange, texts.data(), texts.size());
  for (int peer = 0; peer < exchange.size(); ++peer) {
    if (peer == exchange.rank()) continue;
    block.recv(peer, exchange.agreement_slot(), static_cast<std::size_t>(peer) * kBytes, kBytes);
    block.send(peer, exchange.agreement_slot(), mine, kBytes);
  }
  block.wait_all_recv();
  block.wait_all_send();
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    if (text_of(rank) != text_of(0)) {
      return concat("the ranks differ: rank 0 called ", text_of(0), ", rank ", rank, " called ", text_of(rank));
    }
  }
  return {};
}

}  // namespace ddp::comm
