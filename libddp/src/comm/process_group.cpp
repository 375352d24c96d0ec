#include "ddp/comm/process_group.h"

#include <algorithm>
#include <atomic>

#include "comm/signature.h"
#include "ddp/trace/recorder.h"
#include "tensor/tensor_impl.h"

namespace ddp::comm {

struct ProcessGroup::Books {
  std::atomic<std::uint64_t> collectives{0};
  std::atomic<std::uint64_t> bytes{0};
  std::vector<std::uint64_t> sequences;  // by lane
};

namespace {

void check_tensor(const ProcessGroup& group, std::string_view call, std::string_view what, const Tensor& tensor) {
  DDP_CHECK(tensor.defined(), InvalidArgument, call, ": ", what, " is undefined");
  DDP_CHECK(tensor.device() == group.device(), InvalidArgument, call, ": ", what, " is on ", tensor.device(),
            ", the group works on ", group.device());
  DDP_CHECK(tensor.is_contiguous(), InvalidArgument, call, ": ", what, " of sizes ", tensor.sizes(), " and strides ",
            tensor.strides(), " is not contiguous; pass a contiguous copy");
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data());
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data());
  return a_begin < b_begin + static_cast<std::uintptr_t>(b.nbytes()) &&
         b_begin < a_begin + static_cast<std::uintptr_t>(a.nbytes());
}

void check_apart(std::string_view call, const Tensor& output, const Tensor& input) {
  DDP_CHECK(!overlap(output, input), InvalidArgument, call, ": output and input share memory");
}

void check_apart(std::string_view call, const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> sorted;
  for (const Tensor& tensor : tensors) {
    if (tensor.numel() > 0) sorted.push_back(&tensor);
  }
  std::ranges::sort(sorted, {}, [](const Tensor* tensor) { return reinterpret_cast<std::uintptr_t>(tensor->data()); });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    DDP_CHECK(!overlap(*sorted[i - 1], *sorted[i]), InvalidArgument, call, ": two of the tensors share memory");
  }
}

void check_rank(const ProcessGroup& group, std::string_view call, std::string_view what, int rank) {
  DDP_CHECK(rank >= 0 && rank < group.size(), InvalidArgument, call, ": ", what, " ", rank, " is outside [0, ",
            group.size(), ")");
}

// `rows` must be [size, ...row sizes].
void check_rows(const ProcessGroup& group, std::string_view call, std::string_view rows_name, const Tensor& rows,
                std::string_view row_name, const Tensor& row) {
  Dims wanted = row.sizes();
  wanted.insert(0, group.size());
  DDP_CHECK(rows.sizes() == wanted, InvalidArgument, call, ": ", rows_name, " has sizes ", rows.sizes(), "; with ",
            row_name, " ", row.sizes(), " in a group of ", group.size(), " it must be ", wanted);
  DDP_CHECK(rows.dtype() == row.dtype(), InvalidArgument, call, ": ", rows_name, " is ", rows.dtype(), " and ",
            row_name, " is ", row.dtype());
}

void check_many(const ProcessGroup& group, std::string_view call, const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    check_tensor(group, call, "a tensor", tensor);
    DDP_CHECK(tensor.dtype() == tensors.front().dtype(), InvalidArgument, call, ": tensors of ",
              tensors.front().dtype(), " and ", tensor.dtype(), " in one call; all must have one dtype");
  }
  check_apart(call, tensors);
}

}  // namespace

ProcessGroup::ProcessGroup(int rank, int size, Device device, std::chrono::milliseconds timeout)
    : rank_(rank), size_(size), device_(device), timeout_(timeout), books_(std::make_unique<Books>()) {
  DDP_CHECK(size >= 1, InvalidArgument, "a group of ", size, " ranks; at least 1 is needed");
  DDP_CHECK(rank >= 0 && rank < size, InvalidArgument, "rank ", rank, " is outside [0, ", size, ")");
  DDP_CHECK(timeout.count() > 0, InvalidArgument, "time-out of ", timeout.count(), " ms; it must be positive");
}

ProcessGroup::~ProcessGroup() = default;

void ProcessGroup::ensure_lanes(int count) {
  DDP_CHECK(count <= lanes(), NotAvailable, "backend ", backend(), " has ", lanes(), " lane(s), ", count,
            " were asked for");
}

GroupCounters ProcessGroup::counters() const {
  return {.collectives = books_->collectives.load(std::memory_order_relaxed),
          .bytes = books_->bytes.load(std::memory_order_relaxed)};
}

Work ProcessGroup::start(Collective collective) {
  const int lane = collective.options.lane;
  DDP_CHECK(lane >= 0 && lane < lanes(), InvalidArgument, to_string(collective.kind), ": lane ", lane,
            " is outside [0, ", lanes(), "); see ensure_lanes");
  DDP_CHECK(collective.options.timeout.count() >= 0, InvalidArgument, to_string(collective.kind), ": time-out of ",
            collective.options.timeout.count(), " ms; it must not be negative");
  DDP_CHECK(collective.op != ReduceOp::average || is_floating_point(dtype_of_collective(collective)), InvalidArgument,
            to_string(collective.kind), ": average of ", dtype_of_collective(collective),
            " tensors; it takes floating-point ones only");
  const auto elements = unit_elements(collective);
  std::int64_t bytes = 0;
  for (const Tensor& tensor : collective.inputs) bytes += tensor.nbytes();
  for (const Tensor& tensor : collective.outputs) bytes += tensor.nbytes();
  books_->collectives.fetch_add(1, std::memory_order_relaxed);
  books_->bytes.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
  trace::count(trace::Counter::collectives);
  trace::count(trace::Counter::bytes_reduced, bytes);

  if (!is_point_to_point(collective.kind)) {
    auto& sequences = books_->sequences;
    if (sequences.size() <= static_cast<std::size_t>(lane)) sequences.resize(static_cast<std::size_t>(lane) + 1);
    collective.sequence = ++sequences[static_cast<std::size_t>(lane)];
  }
  // Equal on all ranks like the sizes themselves, so nobody waits for a rank that skips.
  const bool nothing_to_send =
      collective.kind != CollectiveKind::barrier && std::ranges::all_of(elements, [](auto n) { return n == 0; });
  if (nothing_to_send) return {};
  // What arrives changes them in place. On a root too, though its numbers stay: all ranks find out alike when a
  // function had saved them for backward.
  for (const Tensor& output : collective.outputs) output.impl()->storage()->bump_version();
  if (size_ == 1 && !is_point_to_point(collective.kind)) {
    for (std::size_t i = 0; i < collective.inputs.size(); ++i) {
      // One row: output and input have the same elements, whatever their sizes say.
      const Tensor& input = collective.inputs[i];
      const Tensor& output = collective.outputs[i];
      from_blob(output.data(), {output.numel()}, output.options())
          .copy_(from_blob(input.data(), {input.numel()}, input.options()));
    }
    return {};
  }
  return launch(std::move(collective));
}

Work ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op, CollectiveOptions options,
                              std::source_location where) {
  check_tensor(*this, "all_reduce", "the tensor", tensor);
  return start({.kind = CollectiveKind::all_reduce,
                .op = op,
                .outputs = {tensor},
                .options = std::move(options),
                .where = where});
}

Work ProcessGroup::all_reduce_coalesced(const std::vector<Tensor>& tensors, ReduceOp op, CollectiveOptions options,
                                        std::source_location where) {
  check_many(*this, "all_reduce_coalesced", tensors);
  return start({.kind = CollectiveKind::all_reduce,
                .op = op,
                .outputs = tensors,
                .options = std::move(options),
                .where = where});
}

Work ProcessGroup::broadcast(const Tensor& tensor, int root, CollectiveOptions options, std::source_location where) {
  check_tensor(*this, "broadcast", "the tensor", tensor);
  check_rank(*this, "broadcast", "root", root);
  return start({.kind = CollectiveKind::broadcast,
                .outputs = {tensor},
                .root = root,
                .options = std::move(options),
                .where = where});
}

Work ProcessGroup::broadcast_coalesced(const std::vector<Tensor>& tensors, int root, CollectiveOptions options,
                                       std::source_location where) {
  check_many(*this, "broadcast_coalesced", tensors);
  check_rank(*this, "broadcast_coalesced", "root", root);
  return start({.kind = CollectiveKind::broadcast,
                .outputs = tensors,
                .root = root,
                .options = std::move(options),
                .where = where});
}

Work ProcessGroup::all_gather(const Tensor& output, const Tensor& input, CollectiveOptions options,
                              std::source_location where) {
  check_tensor(*this, "all_gather", "input", input);
  check_tensor(*this, "all_gather", "output", output);
  check_rows(*this, "all_gather", "output", output, "input", input);
  check_apart("all_gather", output, input);
  return start({.kind = CollectiveKind::all_gather,
                .inputs = {input},
                .outputs = {output},
                .options = std::move(options),
                .where = where});
}

Work ProcessGroup::reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op, CollectiveOptions options,
                                  std::source_location where) {
  check_tensor(*this, "reduce_scatter", "input", input);
  check_tensor(*this, "reduce_scatter", "output", output);
  check_rows(*this, "reduce_scatter", "input", input, "output", output);
  check_apart("reduce_scatter", output, input);
  return start({.kind = CollectiveKind::reduce_scatter,
                .op = op,
                .inputs = {input},
                .outputs = {output},
                .options = std::move(options),
                .where = where});
}

Work ProcessGroup::gather(const Tensor& output, const Tensor& input, int root, CollectiveOptions options,
                          std::source_location where) {
  check_tensor(*this, "gather", "input", input);
  check_rank(*this, "gather", "root", root);
  Collective collective{
      .kind = CollectiveKind::gather, .inputs = {input}, .root = root, .options = std::move(options), .where = where};
  if (rank_ == root) {
    check_tensor(*this, "gather", "output", output);
    check_rows(*this, "gather", "output", output, "input", input);
    check_apart("gather", output, input);
    collective.outputs = {output};
  }
  return start(std::move(collective));
}

Work ProcessGroup::scatter(const Tensor& output, const Tensor& input, int root, CollectiveOptions options,
                           std::source_location where) {
  check_tensor(*this, "scatter", "output", output);
  check_rank(*this, "scatter", "root", root);
  Collective collective{.kind = CollectiveKind::scatter,
                        .outputs = {output},
                        .root = root,
                        .options = std::move(options),
                        .where = where};
  if (rank_ == root) {
    check_tensor(*this, "scatter", "input", input);
    check_rows(*this, "scatter", "input", input, "output", output);
    check_apart("scatter", output, input);
    collective.inputs = {input};
  }
  return start(std::move(collective));
}

Work ProcessGroup::all_to_all(const Tensor& output, const Tensor& input, CollectiveOptions options,
                              std::source_location where) {
  check_tensor(*this, "all_to_all", "input", input);
  check_tensor(*this, "all_to_all", "output", output);
  DDP_CHECK(input.dim() >= 1 && input.size(0) == size_, InvalidArgument, "all_to_all: input has sizes ", input.sizes(),
            "; the first must be the group's size ", size_);
  DDP_CHECK(output.sizes() == input.sizes() && output.dtype() == input.dtype(), InvalidArgument,
            "all_to_all: output is ", output.sizes(), " of ", output.dtype(), ", input ", input.sizes(), " of ",
            input.dtype(), "; both must be the same");
  check_apart("all_to_all", output, input);
  return start({.kind = CollectiveKind::all_to_all,
                .inputs = {input},
                .outputs = {output},
                .options = std::move(options),
                .where = where});
}

Work ProcessGroup::send(const Tensor& tensor, int to, int tag, CollectiveOptions options, std::source_location where) {
  check_tensor(*this, "send", "the tensor", tensor);
  check_rank(*this, "send", "rank", to);
  DDP_CHECK(to != rank_, InvalidArgument, "send: rank ", to, " is this rank itself");
  DDP_CHECK(tag >= 0 && tag < (1 << 16), InvalidArgument, "send: tag ", tag, " is outside [0, 65536)");
  return start({.kind = CollectiveKind::send,
                .inputs = {tensor},
                .root = to,
                .tag = tag,
                .options = std::move(options),
                .where = where});
}

Work ProcessGroup::recv(const Tensor& tensor, int from, int tag, CollectiveOptions options,
                        std::source_location where) {
  check_tensor(*this, "recv", "the tensor", tensor);
  check_rank(*this, "recv", "rank", from);
  DDP_CHECK(from != rank_, InvalidArgument, "recv: rank ", from, " is this rank itself");
  DDP_CHECK(tag >= 0 && tag < (1 << 16), InvalidArgument, "recv: tag ", tag, " is outside [0, 65536)");
  return start({.kind = CollectiveKind::recv,
                .outputs = {tensor},
                .root = from,
                .tag = tag,
                .options = std::move(options),
                .where = where});
}

void ProcessGroup::barrier(CollectiveOptions options, std::source_location where) {
  start({.kind = CollectiveKind::barrier, .options = std::move(options), .where = where}).wait_blocking(where);
}

}  // namespace ddp::comm
