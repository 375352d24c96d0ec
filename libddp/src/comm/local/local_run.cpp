// The collectives of the in-process group: plain memory work, in rank order.
#include <cstring>

#include "comm/local/local_group.h"
#include "comm/reduce.h"
#include "comm/signature.h"

namespace ddp::comm {
namespace {

using Works = std::vector<std::shared_ptr<AsyncWork>>;

std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data()); }
const Collective& of(const Works& works, std::size_t rank) { return works[rank]->collective(); }

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

void finish(const Collective& collective, const Tensor& sum, std::size_t ranks) {
  if (collective.op != ReduceOp::average) return;
  divide_elements(sum.dtype(), sum.data(), static_cast<std::size_t>(sum.numel()), static_cast<int>(ranks));
}

void all_reduce(const Works& works) {
  const Collective& first = of(works, 0);
  const auto reduce = reduce_function(dtype_of_collective(first), first.op);
  for (std::size_t t = 0; t < first.outputs.size(); ++t) {
    const Tensor& sum = first.outputs[t];
    for (std::size_t r = 1; r < works.size(); ++r) {
      reduce(sum.data(), sum.data(), of(works, r).outputs[t].data(), static_cast<std::size_t>(sum.numel()));
    }
    finish(first, sum, works.size());
    for (std::size_t r = 1; r < works.size(); ++r) {
      copy_bytes(bytes_of(of(works, r).outputs[t]), bytes_of(sum), static_cast<std::size_t>(sum.nbytes()));
    }
  }
}

void broadcast(const Works& works) {
  const Collective& root = of(works, static_cast<std::size_t>(of(works, 0).root));
  for (std::size_t t = 0; t < root.outputs.size(); ++t) {
    for (std::size_t r = 0; r < works.size(); ++r) {
      copy_bytes(bytes_of(of(works, r).outputs[t]), bytes_of(root.outputs[t]),
                 static_cast<std::size_t>(root.outputs[t].nbytes()));
    }
  }
}

void all_gather(const Works& works, bool root_only) {
  for (std::size_t from = 0; from < works.size(); ++from) {
    const Tensor& row = of(works, from).inputs.front();
    const auto bytes = static_cast<std::size_t>(row.nbytes());
    for (std::size_t to = 0; to < works.size(); ++to) {
      if (root_only && to != static_cast<std::size_t>(of(works, to).root)) continue;
      copy_bytes(bytes_of(of(works, to).outputs.front()) + from * bytes, bytes_of(row), bytes);
    }
  }
}

void reduce_scatter(const Works& works) {
  const Collective& first = of(works, 0);
  const auto reduce = reduce_function(dtype_of_collective(first), first.op);
  for (std::size_t to = 0; to < works.size(); ++to) {
    const Tensor& row = of(works, to).outputs.front();
    const auto bytes = static_cast<std::size_t>(row.nbytes());
    copy_bytes(bytes_of(row), bytes_of(first.inputs.front()) + to * bytes, bytes);
    for (std::size_t from = 1; from < works.size(); ++from) {
      reduce(row.data(), row.data(), bytes_of(of(works, from).inputs.front()) + to * bytes,
             static_cast<std::size_t>(row.numel()));
    }
    finish(first, row, works.size());
  }
}

void scatter(const Works& works) {
  const Tensor& rows = of(works, static_cast<std::size_t>(of(works, 0).root)).inputs.front();
  for (std::size_t to = 0; to < works.size(); ++to) {
    const Tensor& row = of(works, to).outputs.front();
    const auto bytes = static_cast<std::size_t>(row.nbytes());
    copy_bytes(bytes_of(row), bytes_of(rows) + to * bytes, bytes);
  }
}

void all_to_all(const Works& works) {
  const auto bytes = static_cast<std::size_t>(of(works, 0).inputs.front().nbytes()) / works.size();
  for (std::size_t from = 0; from < works.size(); ++from) {
    for (std::size_t to = 0; to < works.size(); ++to) {
      copy_bytes(bytes_of(of(works, to).outputs.front()) + from * bytes,
                 bytes_of(of(works, from).inputs.front()) + to * bytes, bytes);
    }
  }
}

}  // namespace

void run_local(const Works& works) {
  switch (of(works, 0).kind) {
    case CollectiveKind::all_reduce:
      return all_reduce(works);
    case CollectiveKind::broadcast:
      return broadcast(works);
    case CollectiveKind::all_gather:
      return all_gather(works, false);
    case CollectiveKind::reduce_scatter:
      return reduce_scatter(works);
    case CollectiveKind::gather:
      return all_gather(works, true);
    case CollectiveKind::scatter:
      return scatter(works);
    case CollectiveKind::all_to_all:
      return all_to_all(works);
    case CollectiveKind::send:
    case CollectiveKind::recv:
    case CollectiveKind::barrier:
      return;
  }
}

}  // namespace ddp::comm
