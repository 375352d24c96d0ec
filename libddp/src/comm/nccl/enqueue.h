#pragma once

#include <nccl.h>

#include <string>

#include "ddp/comm/process_group.h"

namespace ddp::comm {

/// What a collective needs to be put into a stream.
struct NcclPlace {
  ncclComm_t comm = nullptr;
  StreamView stream;
  int rank = 0;
  int size = 1;
  /// Average by a sum and one division on the stream, instead of NCCL's own: see NcclCore.
  bool average_by_division = false;
  /// A few bytes of the device for a barrier to add up.
  void* scratch = nullptr;
};

/// Puts the collective into the stream. The device is current. Returns NCCL's result: ncclInProgress from a
/// non-blocking communicator, whose state is then to be asked for. Throws DeviceError when a copy or kernel fails.
/// `finish_in_progress` is called after NCCL's part and before more is put into the stream.
template <class Finish>
ncclResult_t enqueue(const Collective& what, const NcclPlace& place, const Finish& finish_in_progress);

ncclResult_t enqueue_calls(const Collective& what, const NcclPlace& place);
/// The division of an average, where it is not NCCL's.
void enqueue_division(const Collective& what, const NcclPlace& place);

template <class Finish>
ncclResult_t enqueue(const Collective& what, const NcclPlace& place, const Finish& finish_in_progress) {
  ncclResult_t result = enqueue_calls(what, place);
  if (result == ncclInProgress) result = finish_in_progress(place.comm);
  if (result == ncclSuccess && what.op == ReduceOp::average && place.average_by_division) enqueue_division(what, place);
  return result;
}

/// "unhandled system error (5): socket ...", with what NCCL has noted last.
std::string nccl_text(ncclResult_t result, ncclComm_t comm);

}  // namespace ddp::comm
