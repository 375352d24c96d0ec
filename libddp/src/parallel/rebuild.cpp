#include "parallel/rebuild.h"

#include "parallel/wire.h"

namespace ddp::parallel {

std::vector<std::size_t> ArrivalOrder::agree(comm::ProcessGroup& group, std::size_t slots,
                                             const comm::CollectiveOptions& options, std::source_location where) {
  wanted_ = false;
  pending_ = false;
  std::vector<bool> seen(slots, false);
  for (const std::size_t slot : order_) seen[slot] = true;
  for (std::size_t slot = slots; slot-- > 0;) {
    if (!seen[slot]) order_.push_back(slot);
  }
  ByteWriter out;
  for (const std::size_t slot : order_) out.put<std::uint64_t>(slot);
  const comm::Bytes agreed = group.broadcast_bytes(out.bytes(), 0, options, where);
  DDP_CHECK(agreed.size() == slots * sizeof(std::uint64_t), CommError, "rank 0's order of gradients has ",
            agreed.size() / sizeof(std::uint64_t), " entries, rank ", group.rank(), " has ", slots, " slots");
  ByteReader in(agreed);
  std::vector<std::size_t> order(slots);
  for (std::size_t& slot : order) slot = static_cast<std::size_t>(in.get<std::uint64_t>());
  order_.clear();
  return order;
}

}  // namespace ddp::parallel
