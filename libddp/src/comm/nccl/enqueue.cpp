#include "comm/nccl/enqueue.h"

#include "comm/signature.h"
#include "core/allocator.h"
#include "core/cuda/check.h"
#include "core/observer.h"
#include "tensor/combine.h"

namespace ddp::comm {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::float16:
      return ncclFloat16;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::int32:
      return ncclInt32;
    case DType::int64:
      return ncclInt64;
    case DType::uint8:
    case DType::boolean:  // bytes 0 and 1
      return ncclUint8;
  }
  ddp::detail::fail<InvalidArgument>("NCCL has no type for ", dtype);
}

ncclRedOp_t nccl_op(ReduceOp op, DType dtype, bool average_by_division) {
  const bool boolean = dtype == DType::boolean;
  switch (op) {
    case ReduceOp::sum:
      return boolean ? ncclMax : ncclSum;  // "or"
    case ReduceOp::product:
      return boolean ? ncclMin : ncclProd;  // "and"
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::average:
      return average_by_division ? ncclSum : ncclAvg;
  }
  ddp::detail::fail<InvalidArgument>("NCCL has no reduction ", op);
}

void report(const char* what, StreamView stream) {
  const core::Observer* observer = core::observer();
  if (observer != nullptr && observer->launch != nullptr) observer->launch(what, stream.device());
}

std::size_t elements(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }
std::byte* bytes(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data()); }

/// The calls of one collective, joined by NCCL into one launch. Other ranks' launches, on other devices of the process
/// too, wait for it: no memory is asked of the system before it is made.
class Calls {
 public:
  explicit Calls(const NcclPlace& place) : place_(place) { note(ncclGroupStart()); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls() {
    if (open_) static_cast<void>(ncclGroupEnd());  // an exception is on its way
  }

  void note(ncclResult_t result) {
    if (result_ == ncclSuccess) result_ = result;
  }
  void send(const Tensor& tensor, std::size_t row, std::size_t rows, int peer) {
    const std::size_t count = elements(tensor) / rows;
    note(ncclSend(bytes(tensor) + row * count * size_of(tensor.dtype()), count, nccl_type(tensor.dtype()), peer,
                  place_.comm, place_.stream.native()));
  }
  void recv(const Tensor& tensor, std::size_t row, std::size_t rows, int peer) {
    const std::size_t count = elements(tensor) / rows;
    note(ncclRecv(bytes(tensor) + row * count * size_of(tensor.dtype()), count, nccl_type(tensor.dtype()), peer,
                  place_.comm, place_.stream.native()));
  }
  ncclResult_t end() {
    open_ = false;
    const ncclResult_t ended = ncclGroupEnd();
    return result_ == ncclSuccess || result_ == ncclInProgress ? ended : result_;
  }

 private:
  const core::NoDeviceAllocation scope_{"a group of NCCL calls"};
  const NcclPlace& place_;
  bool open_ = true;
  ncclResult_t result_ = ncclSuccess;
};

/// A rank's own row, which need not travel.
void copy_own(const Tensor& to, std::size_t to_row, const Tensor& from, std::size_t from_row, std::size_t row_bytes,
              StreamView stream) {
  if (row_bytes == 0) return;
  DDP_CUDA_CHECK(cudaMemcpyAsync(bytes(to) + to_row * row_bytes, bytes(from) + from_row * row_bytes, row_bytes,
                                 cudaMemcpyDeviceToDevice, stream.native()));
}

ncclResult_t all_reduce(const Collective& what, const NcclPlace& place) {
  const DType dtype = dtype_of_collective(what);
  const auto one = [&](const Tensor& tensor) {
    return ncclAllReduce(tensor.data(), tensor.data(), elements(tensor), nccl_type(dtype),
                         nccl_op(what.op, dtype, place.average_by_division), place.comm, place.stream.native());
  };
  if (what.outputs.size() == 1) return one(what.outputs.front());
  Calls calls(place);
  for (const Tensor& tensor : what.outputs) {
    if (tensor.numel() > 0) calls.note(one(tensor));
  }
  return calls.end();
}

ncclResult_t broadcast(const Collective& what, const NcclPlace& place) {
  const auto one = [&](const Tensor& tensor) {
    return ncclBroadcast(tensor.data(), tensor.data(), elements(tensor), nccl_type(tensor.dtype()), what.root,
                         place.comm, place.stream.native());
  };
  if (what.outputs.size() == 1) return one(what.outputs.front());
  Calls calls(place);
  for (const Tensor& tensor : what.outputs) {
    if (tensor.numel() > 0) calls.note(one(tensor));
  }
  return calls.end();
}

ncclResult_t gather(const Collective& what, const NcclPlace& place) {
  const Tensor& row = what.inputs.front();
  const auto rows = static_cast<std::size_t>(place.size);
  if (place.rank == what.root) {
    copy_own(what.outputs.front(), static_cast<std::size_t>(place.rank), row, 0, static_cast<std::size_t>(row.nbytes()),
             place.stream);
  }
  Calls calls(place);
  if (place.rank != what.root) {
    calls.send(row, 0, 1, what.root);
  } else {
    for (int peer = 0; peer < place.size; ++peer) {
      if (peer != place.rank) calls.recv(what.outputs.front(), static_cast<std::size_t>(peer), rows, peer);
    }
  }
  return calls.end();
}

ncclResult_t scatter(const Collective& what, const NcclPlace& place) {
  const Tensor& row = what.outputs.front();
  const auto rows = static_cast<std::size_t>(place.size);
  if (place.rank == what.root) {
    copy_own(row, 0, what.inputs.front(), static_cast<std::size_t>(place.rank), static_cast<std::size_t>(row.nbytes()),
             place.stream);
  }
  Calls calls(place);
  if (place.rank != what.root) {
    calls.recv(row, 0, 1, what.root);
  } else {
    for (int peer = 0; peer < place.size; ++peer) {
      if (peer != place.rank) calls.send(what.inputs.front(), static_cast<std::size_t>(peer), rows, peer);
    }
  }
  return calls.end();
}

ncclResult_t all_to_all(const Collective& what, const NcclPlace& place) {
  const Tensor& input = what.inputs.front();
  const Tensor& output = what.outputs.front();
  const auto rows = static_cast<std::size_t>(place.size);
  const auto own = static_cast<std::size_t>(place.rank);
  copy_own(output, own, input, own, static_cast<std::size_t>(input.nbytes()) / rows, place.stream);
  Calls calls(place);
  for (int peer = 0; peer < place.size; ++peer) {
    if (peer == place.rank) continue;
    calls.send(input, static_cast<std::size_t>(peer), rows, peer);
    calls.recv(output, static_cast<std::size_t>(peer), rows, peer);
  }
  return calls.end();
}

}  // namespace

ncclResult_t enqueue_calls(const Collective& what, const NcclPlace& place) {
  report("nccl", place.stream);
  switch (what.kind) {
    case CollectiveKind::all_reduce:
      return all_reduce(what, place);
    case CollectiveKind::broadcast:
      return broadcast(what, place);
    case CollectiveKind::all_gather: {
      const Tensor& row = what.inputs.front();
      return ncclAllGather(row.data(), what.outputs.front().data(), elements(row), nccl_type(row.dtype()), place.comm,
                           place.stream.native());
    }
    case CollectiveKind::reduce_scatter: {
      const Tensor& row = what.outputs.front();
      return ncclReduceScatter(what.inputs.front().data(), row.data(), elements(row), nccl_type(row.dtype()),
                               nccl_op(what.op, row.dtype(), place.average_by_division), place.comm,
                               place.stream.native());
    }
    case CollectiveKind::gather:
      return gather(what, place);
    case CollectiveKind::scatter:
      return scatter(what, place);
    case CollectiveKind::all_to_all:
      return all_to_all(what, place);
    case CollectiveKind::send:  // the communicator is of these two ranks; the other one is 1 - rank
      return ncclSend(what.inputs.front().data(), elements(what.inputs.front()), nccl_type(what.inputs.front().dtype()),
                      1 - place.rank, place.comm, place.stream.native());
    case CollectiveKind::recv:
      return ncclRecv(what.outputs.front().data(), elements(what.outputs.front()),
                      nccl_type(what.outputs.front().dtype()), 1 - place.rank, place.comm, place.stream.native());
    case CollectiveKind::barrier:
      return ncclAllReduce(place.scratch, place.scratch, 1, ncclUint8, ncclMax, place.comm, place.stream.native());
  }
  return ncclInvalidArgument;
}

void enqueue_division(const Collective& what, const NcclPlace& place) {
  const StreamGuard guard(place.stream);
  for (const Tensor& tensor : what.outputs) raw::divide_(tensor, place.size);
}

std::string nccl_text(ncclResult_t result, ncclComm_t comm) {
  std::string text = concat(ncclGetErrorString(result), " (", static_cast<int>(result), ")");
  const char* last = ncclGetLastError(comm);
  if (last != nullptr && *last != '\0') text += concat(": ", last);
  return text;
}

}  // namespace ddp::comm
