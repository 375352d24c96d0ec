#include "ddp/parallel/agree.h"

#include "parallel/wire.h"

namespace ddp::parallel {

std::function<std::uint64_t(std::uint64_t)> agree_seed(std::shared_ptr<comm::ProcessGroup> group) {
  DDP_CHECK(group != nullptr, InvalidArgument, "agree_seed: the group is null");
  return [group = std::move(group)](std::uint64_t seed) {
    ByteWriter out;
    out.put(seed);
    const std::vector<comm::Bytes> all = group->all_gather_bytes(out.bytes(), {.label = "sampler seed"});
    std::uint64_t first = seed;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      ByteReader in(all[rank]);
      const auto given = in.get<std::uint64_t>();
      if (rank == 0) first = given;
      DDP_CHECK(given == first, InvalidArgument, "the sampler's seed must be equal on all ranks: rank 0 has ", first,
                ", rank ", rank, " has ", given);
    }
    return first;
  };
}

}  // namespace ddp::parallel
