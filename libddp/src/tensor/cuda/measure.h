#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

#include "core/cuda/check.h"
#include "core/observer.h"
#include "ddp/core/precision.h"
#include "ddp/core/stream.h"

/// Choosing among a library's algorithms by trying them.
namespace ddp::raw::cuda {

/// Whether algorithms may be measured now: asked for, and the stream is not being captured into a graph.
inline bool may_measure(StreamView stream) {
  if (!autotune()) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  DDP_CUDA_CHECK(cudaStreamIsCapturing(stream.native(), &status));
  return status == cudaStreamCaptureStatusNone;
}

/// Milliseconds of one `launch()` on the stream: the second and third of three. Blocks the host, and reports that.
template <class Launch>
double measure(StreamView stream, const Launch& launch) {
  constexpr int kRuns = 2;
  Event begin(stream.device(), true);
  Event end(stream.device(), true);
  launch();
  begin.record(stream);
  for (int i = 0; i < kRuns; ++i) launch();
  end.record(stream);
  const core::BlockingScope scope("measuring algorithms (autotune)", stream.device(), std::source_location::current());
  end.synchronize();
  return end.milliseconds_since(begin) / kRuns;
}

}  // namespace ddp::raw::cuda
