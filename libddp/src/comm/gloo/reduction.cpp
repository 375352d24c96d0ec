#include "comm/gloo/reduction.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/reduce.h"
#include "comm/signature.h"

namespace ddp::comm {
namespace {

constexpr unsigned kToOwner = 0;
constexpr unsigned kFromOwner = 1;

// Up to here every rank sends all it has to every other, one step; above, each rank combines a part and sends it on.
constexpr std::size_t kDirectBytes = 16 << 10;
// Size of a message in flight: large enough to make its cost small, small enough that combining one overlaps with
// receiving the next.
constexpr std::size_t kSegmentBytes = 1 << 20;
// Segments of one peer that may be under way at once.
constexpr std::size_t kWindow = 2;
// Tensors are handled in blocks, so that the memory for what peers send stays small.
constexpr std::size_t kBlockBytes = 32 << 20;
// Coalesced tensors below this size are packed together into one message of up to kPackBytes.
constexpr std::size_t kAloneBytes = 1 << 20;
constexpr std::size_t kPackBytes = 4 << 20;

struct Reduction {
  ReduceFunction function;
  std::size_t element_bytes;
  DType dtype;
  bool average;

  // On complete sums only, each element on every rank that combined it.
  void finish(std::byte* sums, std::size_t n, int ranks) const {
    if (average) divide_elements(dtype, sums, n, ranks);
  }
};

// Peers' contributions lie in `parts`, by rank without this one, `stride` bytes apart. dst may be `own`.
void combine_in_rank_order(const Exchange& exchange, const Reduction& reduction, std::byte* dst, const std::byte* own,
                           std::byte* parts, std::size_t stride, std::size_t bytes) {
  const std::size_t n = bytes / reduction.element_bytes;
  const std::byte* sum = nullptr;
  for (int rank = 0; rank < exchange.size(); ++rank) {
    const std::byte* value = rank == exchange.rank()  ? own
                             : rank < exchange.rank() ? parts + static_cast<std::size_t>(rank) * stride
                                                      : parts + static_cast<std::size_t>(rank - 1) * stride;
    if (sum == nullptr) {
      sum = value;
      continue;
    }
    // Own numbers may lie in dst: until they are used, the sum grows in the first part.
    std::byte* target = rank < exchange.rank() ? parts : dst;
    reduction.function(target, sum, value, n);
    sum = target;
  }
  reduction.finish(dst, n, exchange.size());
}

std::size_t place(int peer, int rank) { return static_cast<std::size_t>(peer < rank ? peer : peer - 1); }

// Cuts `count` elements into equal parts.
std::size_t cut(std::size_t count, std::size_t part, std::size_t parts) { return count * part / parts; }

// A point of a collective that every rank comes to; what each wrote before can be read after (a message passes
// through locks and the kernel on both sides, which order memory; thread sanitizer knows no fences). Receives are
// posted at construction, as early as possible: Gloo sends a message when it knows of its receive.
class Meeting {
 public:
  Meeting(const Exchange& exchange, unsigned phase)
      : exchange_(exchange),
        phase_(phase),
        tokens_(static_cast<std::size_t>(exchange.size())),
        incoming_(exchange, tokens_.data(), tokens_.size()),
        outgoing_(exchange, tokens_.data() + exchange.rank(), 1) {
    each_peer([&](int peer) { incoming_.recv(peer, exchange_.slot(phase_), static_cast<std::size_t>(peer), 1); });
  }
  void arrive() {
    each_peer([&](int peer) { outgoing_.send(peer, exchange_.slot(phase_), 0, 1); });
    incoming_.wait_all_recv();
    outgoing_.wait_all_send();
  }

 private:
  template <class Action>
  void each_peer(const Action& action) {
    for (int peer = 0; peer < exchange_.size(); ++peer) {
      if (peer != exchange_.rank()) action(peer);
    }
  }
  const Exchange& exchange_;
  const unsigned phase_;
  std::vector<char> tokens_;
  Block incoming_;
  Block outgoing_;
};

void all_reduce_direct(const Exchange& exchange, const Reduction& reduction, std::byte* data, std::size_t bytes) {
  const auto peers = static_cast<std::size_t>(exchange.size() - 1);
  std::byte* parts = exchange.scratch().reserve(bytes * peers);
  Block incoming(exchange, parts, bytes * peers);
  Block outgoing(exchange, data, bytes);
  for (int peer = 0; peer < exchange.size(); ++peer) {
    if (peer == exchange.rank()) continue;
    incoming.recv(peer, exchange.slot(kToOwner), place(peer, exchange.rank()) * bytes, bytes);
    outgoing.send(peer, exchange.slot(kToOwner), 0, bytes);
  }
  incoming.wait_all_recv();
  outgoing.wait_all_send();  // before the numbers change
  combine_in_rank_order(exchange, reduction, data, data, parts, bytes, bytes);
}

// Rank r combines part r of the block, segment by segment, and sends each combined segment to all.
void all_reduce_block(const Exchange& exchange, const Reduction& reduction, std::byte* data, std::size_t elements) {
  const int rank = exchange.rank();
  const auto ranks = static_cast<std::size_t>(exchange.size());
  const std::size_t width = reduction.element_bytes;
  const std::size_t longest = (elements + ranks - 1) / ranks;
  const std::size_t segments = std::max<std::size_t>(1, (longest * width + kSegmentBytes - 1) / kSegmentBytes);
  // Byte offset at which segment s of rank r's part begins.
  const auto at = [&](int r, std::size_t s) {
    const std::size_t begin = cut(elements, static_cast<std::size_t>(r), ranks);
    const std::size_t end = cut(elements, static_cast<std::size_t>(r) + 1, ranks);
    return (begin + cut(end - begin, s, segments)) * width;
  };
  const auto bytes_of = [&](int r, std::size_t s) { return at(r, s + 1) - at(r, s); };
  // Peers' segments share a few places, so that they are still in the cache when they are combined.
  const std::size_t window = std::min(kWindow, segments);
  const std::size_t place_bytes = (longest / segments + 1) * width;
  const std::size_t stride = window * place_bytes;
  std::byte* parts = exchange.scratch().reserve(stride * (ranks - 1));
  // A block for each peer: a block tells that something has arrived, and not reliably from whom.
  std::vector<std::unique_ptr<Block>> incoming;
  for (std::size_t i = 0; i + 1 < ranks; ++i) {
    incoming.push_back(std::make_unique<Block>(exchange, parts + i * stride, stride));
  }
  Block whole(exchange, data, elements * width);
  const auto each_peer = [&](const auto& action) {
    for (int peer = 0; peer < exchange.size(); ++peer) {
      if (peer != rank) action(peer);
    }
  };
  const auto expect = [&](std::size_t s) {
    each_peer([&](int peer) {
      incoming[place(peer, rank)]->recv(peer, exchange.slot(kToOwner), s % window * place_bytes, bytes_of(rank, s));
    });
  };

  for (std::size_t s = 0; s < segments; ++s) {
    if (s < window) expect(s);
    each_peer([&](int peer) { whole.send(peer, exchange.slot(kToOwner), at(peer, s), bytes_of(peer, s)); });
  }
  // A peer sends back a combined segment only after it has received this rank's numbers, so the receive may wait
  // on the same memory.
  for (std::size_t s = 0; s < segments; ++s) {
    each_peer([&](int peer) { whole.recv(peer, exchange.slot(kFromOwner), at(peer, s), bytes_of(peer, s)); });
  }
  for (std::size_t s = 0; s < segments; ++s) {
    for (const auto& block : incoming) block->wait_recv();  // each peer's arrive in order
    combine_in_rank_order(exchange, reduction, data + at(rank, s), data + at(rank, s), parts + s % window * place_bytes,
                          stride, bytes_of(rank, s));
    each_peer([&](int peer) { whole.send(peer, exchange.slot(kFromOwner), at(rank, s), bytes_of(rank, s)); });
    if (s + window < segments) expect(s + window);
  }
  whole.wait_all_recv();
  whole.wait_all_send();
}

// Numbers through shared memory, one block of at most SharedLane::kAreaBytes: every rank lays its numbers down,
// rank r combines part r of all and lays the sums down in the place of its own part r, which no peer reads before.
void all_reduce_shared(const Exchange& exchange, const Reduction& reduction, std::byte* data, std::size_t elements) {
  constexpr std::size_t kPiece = 32 << 10;  // combined, and laid down, while in the cache
  SharedLane& lane = exchange.shared();
  const int rank = exchange.rank();
  const int ranks = exchange.size();
  const std::size_t width = reduction.element_bytes;
  const auto begin = [&](int r) {
    return cut(elements, static_cast<std::size_t>(r), static_cast<std::size_t>(ranks)) * width;
  };
  Meeting laid_down(exchange, kToOwner);
  Meeting combined(exchange, kFromOwner);
  std::byte* mine = lane.area(rank);
  const std::size_t first = begin(rank);
  const std::size_t last = begin(rank + 1);
  std::memcpy(mine, data, first);
  std::memcpy(mine + last, data + last, elements * width - last);
  laid_down.arrive();
  std::byte* lower = exchange.scratch().reserve(kPiece);
  const std::size_t step = kPiece / width * width;
  for (std::size_t at = first; at < last; at += step) {
    const std::size_t bytes = std::min(step, last - at);
    const std::byte* sum = nullptr;
    for (int r = 0; r < ranks; ++r) {
      const std::byte* value = r == rank ? data + at : lane.area(r) + at;
      if (sum == nullptr) {
        sum = value;
        continue;
      }
      // Own numbers lie in the destination: until they are used, the sum grows elsewhere.
      std::byte* target = r < rank ? lower : data + at;
      reduction.function(target, sum, value, bytes / width);
      sum = target;
    }
    reduction.finish(data + at, bytes / width, ranks);
    std::memcpy(mine + at, data + at, bytes);
  }
  combined.arrive();
  for (int r = 0; r < ranks; ++r) {
    if (r != rank) std::memcpy(data + begin(r), lane.area(r) + begin(r), begin(r + 1) - begin(r));
  }
  lane.next_block();
}

void all_reduce_memory(const Exchange& exchange, const Reduction& reduction, std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  const bool shared = bytes > kDirectBytes && exchange.shared().available(exchange);
  const std::size_t longest = shared ? SharedLane::kAreaBytes : kBlockBytes;
  const std::size_t block = longest / reduction.element_bytes * reduction.element_bytes;
  for (std::size_t done = 0; done < bytes; done += block) {
    const std::size_t count = std::min(block, bytes - done);
    if (count <= kDirectBytes) {
      all_reduce_direct(exchange, reduction, data + done, count);
    } else if (shared) {
      all_reduce_shared(exchange, reduction, data + done, count / reduction.element_bytes);
    } else {
      all_reduce_block(exchange, reduction, data + done, count / reduction.element_bytes);
    }
  }
}

Reduction reduction_of(const Collective& collective) {
  const DType dtype = dtype_of_collective(collective);
  return {.function = reduce_function(dtype, collective.op),
          .element_bytes = size_of(dtype),
          .dtype = dtype,
          .average = collective.op == ReduceOp::average};
}

}  // namespace

void exchange_all_reduce(const Exchange& exchange) {
  const auto& tensors = exchange.collective().outputs;
  const Reduction reduction = reduction_of(exchange.collective());
  const auto bytes_of = [&](std::size_t i) { return static_cast<std::size_t>(tensors[i].nbytes()); };
  for (std::size_t begin = 0; begin < tensors.size();) {
    std::size_t end = begin;
    std::size_t packed = 0;
    while (end < tensors.size() && bytes_of(end) < kAloneBytes && packed + bytes_of(end) <= kPackBytes) {
      packed += bytes_of(end++);
    }
    if (end <= begin + 1) {
      all_reduce_memory(exchange, reduction, static_cast<std::byte*>(tensors[begin].data()), bytes_of(begin));
      ++begin;
      continue;
    }
    std::byte* staged = exchange.staging().reserve(packed);
    std::size_t offset = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (bytes_of(i) > 0) std::memcpy(staged + offset, tensors[i].data(), bytes_of(i));
      offset += bytes_of(i);
    }
    all_reduce_memory(exchange, reduction, staged, packed);
    offset = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (bytes_of(i) > 0) std::memcpy(tensors[i].data(), staged + offset, bytes_of(i));
      offset += bytes_of(i);
    }
    begin = end;
  }
}

void exchange_reduce_scatter(const Exchange& exchange) {
  const Reduction reduction = reduction_of(exchange.collective());
  const Tensor& output = exchange.collective().outputs.front();
  auto* rows = static_cast<std::byte*>(exchange.collective().inputs.front().data());
  const auto row = static_cast<std::size_t>(output.nbytes());
  const auto ranks = static_cast<std::size_t>(exchange.size());
  const int rank = exchange.rank();
  std::byte* parts = exchange.scratch().reserve(row * (ranks - 1));
  Block incoming(exchange, parts, row * (ranks - 1));
  Block outgoing(exchange, rows, row * ranks);
  for (int peer = 0; peer < exchange.size(); ++peer) {
    if (peer == rank) continue;
    incoming.recv(peer, exchange.slot(kToOwner), place(peer, rank) * row, row);
    outgoing.send(peer, exchange.slot(kToOwner), static_cast<std::size_t>(peer) * row, row);
  }
  incoming.wait_all_recv();
  combine_in_rank_order(exchange, reduction, static_cast<std::byte*>(output.data()),
                        rows + static_cast<std::size_t>(rank) * row, parts, row, row);
  outgoing.wait_all_send();
}

}  // namespace ddp::comm
