// The collectives of the in-process group on CUDA devices: copies and kernels on one stream of rank 0's device, in rank
// order, after each rank's stream and before none. On one device a sum is one launch that reads and writes all ranks'
// memory; what lies on other devices is copied there and back.
#include "comm/local/local_group.h"
#include "comm/signature.h"
#include "core/device_runtime.h"
#include "ddp/trace/device_span.h"
#include "tensor/combine.h"

namespace ddp::comm {
namespace {

using Works = std::vector<std::shared_ptr<AsyncWork>>;

const Collective& of(const Works& works, std::size_t rank) { return works[rank]->collective(); }
std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data()); }

/// `count` elements of a tensor from `first` on, as a tensor.
Tensor part(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  return from_blob(bytes_of(tensor) + first * static_cast<std::int64_t>(size_of(tensor.dtype())), {count},
                   tensor.options());
}

/// Both with the same number of bytes, on any devices.
void copy(const Tensor& to, const Tensor& from, StreamView stream) {
  const auto bytes = static_cast<std::size_t>(from.nbytes());
  if (bytes == 0 || to.data() == from.data()) return;
  core::device_runtime(DeviceType::cuda).copy(to.data(), to.device(), from.data(), from.device(), bytes, stream);
}

raw::Combine combine_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return raw::Combine::sum;
    case ReduceOp::product:
      return raw::Combine::product;
    case ReduceOp::min:
      return raw::Combine::min;
    case ReduceOp::max:
      return raw::Combine::max;
  }
  ddp::detail::fail<InvalidArgument>("no reduction ", static_cast<int>(op));
}

/// Combines `sources` by rank into all of `outputs`, wherever they are.
void combine(const std::vector<Tensor>& sources, const std::vector<Tensor>& outputs, ReduceOp op, StreamView stream) {
  if (sources.front().numel() == 0) return;
  const Device here = stream.device();
  const int divisor = op == ReduceOp::average ? static_cast<int>(sources.size()) : 1;
  std::vector<Tensor> near;
  for (const Tensor& source : sources) {
    near.push_back(source);
    if (source.device() == here) continue;
    near.back() = empty({source.numel()}, {.dtype = source.dtype(), .device = here});
    copy(near.back(), source, stream);
  }
  std::vector<Tensor> near_outputs;
  for (const Tensor& output : outputs) {
    if (output.device() == here) near_outputs.push_back(output);
  }
  if (near_outputs.empty()) {
    near_outputs.push_back(empty({sources.front().numel()}, {.dtype = sources.front().dtype(), .device = here}));
  }
  raw::combine(near, near_outputs, combine_of(op), divisor);
  for (const Tensor& output : outputs) {
    if (output.device() != here) copy(output, near_outputs.front(), stream);
  }
}

void all_reduce(const Works& works, StreamView stream) {
  const Collective& first = of(works, 0);
  for (std::size_t t = 0; t < first.outputs.size(); ++t) {
    std::vector<Tensor> all;
    all.reserve(works.size());
    for (std::size_t r = 0; r < works.size(); ++r) all.push_back(of(works, r).outputs[t]);
    combine(all, all, first.op, stream);
  }
}

void reduce_scatter(const Works& works, StreamView stream) {
  for (std::size_t to = 0; to < works.size(); ++to) {
    const Tensor& row = of(works, to).outputs.front();
    std::vector<Tensor> sources;
    sources.reserve(works.size());
    for (std::size_t from = 0; from < works.size(); ++from) {
      sources.push_back(part(of(works, from).inputs.front(), static_cast<std::int64_t>(to) * row.numel(), row.numel()));
    }
    combine(sources, {row}, of(works, 0).op, stream);
  }
}

void broadcast(const Works& works, StreamView stream) {
  const Collective& root = of(works, static_cast<std::size_t>(of(works, 0).root));
  for (std::size_t t = 0; t < root.outputs.size(); ++t) {
    for (std::size_t r = 0; r < works.size(); ++r) copy(of(works, r).outputs[t], root.outputs[t], stream);
  }
}

void all_gather(const Works& works, bool root_only, StreamView stream) {
  for (std::size_t from = 0; from < works.size(); ++from) {
    const Tensor& row = of(works, from).inputs.front();
    for (std::size_t to = 0; to < works.size(); ++to) {
      if (root_only && to != static_cast<std::size_t>(of(works, to).root)) continue;
      copy(part(of(works, to).outputs.front(), static_cast<std::int64_t>(from) * row.numel(), row.numel()), row,
           stream);
    }
  }
}

void scatter(const Works& works, StreamView stream) {
  const Tensor& rows = of(works, static_cast<std::size_t>(of(works, 0).root)).inputs.front();
  for (std::size_t to = 0; to < works.size(); ++to) {
    const Tensor& row = of(works, to).outputs.front();
    copy(row, part(rows, static_cast<std::int64_t>(to) * row.numel(), row.numel()), stream);
  }
}

void all_to_all(const Works& works, StreamView stream) {
  const auto ranks = static_cast<std::int64_t>(works.size());
  const std::int64_t row = of(works, 0).inputs.front().numel() / ranks;
  for (std::int64_t from = 0; from < ranks; ++from) {
    for (std::int64_t to = 0; to < ranks; ++to) {
      copy(part(of(works, static_cast<std::size_t>(to)).outputs.front(), from * row, row),
           part(of(works, static_cast<std::size_t>(from)).inputs.front(), to * row, row), stream);
    }
  }
}

void put(const Works& works, StreamView stream) {
  switch (of(works, 0).kind) {
    case CollectiveKind::all_reduce:
      return all_reduce(works, stream);
    case CollectiveKind::broadcast:
      return broadcast(works, stream);
    case CollectiveKind::all_gather:
      return all_gather(works, false, stream);
    case CollectiveKind::reduce_scatter:
      return reduce_scatter(works, stream);
    case CollectiveKind::gather:
      return all_gather(works, true, stream);
    case CollectiveKind::scatter:
      return scatter(works, stream);
    case CollectiveKind::all_to_all:
      return all_to_all(works, stream);
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return copy(of(works, 1).outputs.front(), of(works, 0).inputs.front(), stream);
    case CollectiveKind::barrier:
      return;
  }
}

}  // namespace

void run_on_device(const Works& works, StreamView stream) {
  const StreamGuard guard(stream);
  const Collective& first = of(works, 0);
  for (const auto& work : works) stream.wait(static_cast<const StreamWork&>(*work).ready());
  trace::DeviceSpan span(trace::SpanKind::collective, stream, first.options.label, first.options.lane);
  const auto tell = [&] {
    span.end(stream);
    const auto done = std::make_shared<Event>(stream.device());
    done->record(stream);
    for (const auto& work : works) static_cast<StreamWork&>(*work).queued(done);
  };
  try {
    put(works, stream);
  } catch (...) {
    tell();  // part of it may be on its way and use the memory
    throw;
  }
  tell();
}

}  // namespace ddp::comm
