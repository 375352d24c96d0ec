// Calls of ProcessGroup that exchange bytes or make groups, in terms of its tensor collectives.
#include <algorithm>

#include "ddp/comm/process_group.h"

namespace ddp::comm {
namespace {

Tensor to_tensor(const Bytes& bytes, Device device) {
  return tensor(std::span<const std::uint8_t>(bytes), {static_cast<std::int64_t>(bytes.size())}, device);
}

}  // namespace

Bytes ProcessGroup::broadcast_bytes(const Bytes& bytes, int root, CollectiveOptions options,
                                    std::source_location where) {
  const TensorOptions lengths{.dtype = DType::int64, .device = device_};
  const Tensor length = full({1}, static_cast<double>(bytes.size()), lengths);
  broadcast(length, root, options, where).wait_blocking(where);
  const Tensor data =
      rank_ == root ? to_tensor(bytes, device_) : empty({length.item<std::int64_t>(where)}, {DType::uint8, device_});
  broadcast(data, root, std::move(options), where).wait_blocking(where);
  return rank_ == root ? bytes : data.to_vector<std::uint8_t>(where);
}

std::vector<Bytes> ProcessGroup::all_gather_bytes(const Bytes& bytes, CollectiveOptions options,
                                                  std::source_location where) {
  const TensorOptions lengths{.dtype = DType::int64, .device = device_};
  const Tensor mine = full({1}, static_cast<double>(bytes.size()), lengths);
  const Tensor all = empty({size_, 1}, lengths);
  all_gather(all, mine, options, where).wait_blocking(where);
  const auto sizes = all.to_vector<std::int64_t>(where);

  // Rows of one length: the longest.
  const std::int64_t longest = *std::ranges::max_element(sizes);
  Bytes padded = bytes;
  padded.resize(static_cast<std::size_t>(longest));
  const Tensor rows = empty({size_, longest}, {DType::uint8, device_});
  all_gather(rows, to_tensor(padded, device_), std::move(options), where).wait_blocking(where);
  const auto flat = rows.to_vector<std::uint8_t>(where);
  std::vector<Bytes> result;
  for (int r = 0; r < size_; ++r) {
    const auto begin = flat.begin() + r * longest;
    result.emplace_back(begin, begin + sizes[static_cast<std::size_t>(r)]);
  }
  return result;
}

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks, std::source_location where) {
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  DDP_CHECK(!ranks.empty(), InvalidArgument, "new_group: no ranks were given");
  DDP_CHECK(std::ranges::adjacent_find(sorted) == sorted.end(), InvalidArgument, "new_group: a rank is listed twice");
  DDP_CHECK(sorted.front() >= 0 && sorted.back() < size_, InvalidArgument, "new_group: rank ",
            sorted.front() < 0 ? sorted.front() : sorted.back(), " is outside [0, ", size_, ")");
  const auto place = std::ranges::find(ranks, rank_);
  const bool member = place != ranks.end();
  return split(member ? 0 : -1, member ? static_cast<int>(place - ranks.begin()) : 0, where);
}

}  // namespace ddp::comm
