#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "ddp/autograd/functions.h"
#include "ddp/comm/process_group.h"
#include "ddp/core/error.h"
#include "ddp/parallel/reducer.h"
#include "support/rank_gpu.h"
#include "support/ranks.h"
#include "support/recording_group.h"

/// Helpers of this room's tests.
namespace ddp::test {

/// "local", or what the variable DDP_TEST_BACKEND has: every test runs over each backend. "cuda" is the in-process
/// group with all ranks on one GPU; a process that is a rank over NCCL has `rank_gpu`.
inline std::string test_backend() {
  const char* name = std::getenv("DDP_TEST_BACKEND");
  return name == nullptr ? "local" : name;
}
inline bool on_cuda() { return test_backend() == "cuda"; }
inline Device test_device() { return on_cuda() ? rank_gpu() : Device::cpu(); }
/// The same numbers on the device under test.
inline Tensor put(const Tensor& tensor) { return to(tensor, test_device()); }

/// `run_ranks` over the backend under test.
inline void on_ranks(int size, const RankFunction& body, RankOptions options = {}) {
  options.backend = on_cuda() ? "local" : test_backend();
  options.device = test_device();
  run_ranks(size, body, options);
}

/// The text of the `Kind` that `call` throws; a failure when it throws nothing. Other errors pass.
template <class Kind, class F>
std::string text_of(F&& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Labels of the recorded all_reduce calls, in order.
inline std::vector<std::string> reduced_labels(const RecordingGroup& group) {
  std::vector<std::string> labels;
  for (const RecordedCall& call : group.calls()) {
    if (call.kind == comm::CollectiveKind::all_reduce) labels.push_back(call.label);
  }
  return labels;
}

/// Slots "p0", "p1", ... of these element counts.
inline std::vector<parallel::GradientSlot> make_slots(const std::vector<std::int64_t>& counts,
                                                      DType dtype = DType::float32) {
  std::vector<parallel::GradientSlot> slots;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    slots.push_back({concat("p", i), {counts[i]}, dtype, test_device()});
  }
  return slots;
}
/// The same slots on the device under test.
inline std::vector<parallel::GradientSlot> put(std::vector<parallel::GradientSlot> slots) {
  for (parallel::GradientSlot& slot : slots) slot.device = test_device();
  return slots;
}

/// Ends a pass so that every rank knows how it went, on any device.
inline void end_pass(parallel::Reducer& reducer) {
  if (on_cuda()) {
    reducer.finish_blocking();
  } else {
    reducer.finish();
  }
}

}  // namespace ddp::test
