#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "core/cuda/cudnn.h"
#include "core/cuda/handle.h"

/// Thin owners over cuDNN's graph API.
namespace ddp::raw::cuda {

/// A backend descriptor: attributes are set, then it is finalized and unchangeable.
class GraphDescriptor {
 public:
  explicit GraphDescriptor(cudnnBackendDescriptorType_t type) {
    DDP_CUDNN_CHECK(cudnnBackendCreateDescriptor(type, native_.put()));
  }
  cudnnBackendDescriptor_t get() const { return native_.get(); }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
    DDP_CUDNN_CHECK(cudnnBackendSetAttribute(native_.get(), name, type, count, values));
  }
  void set(cudnnBackendAttributeName_t name, std::int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
    set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const GraphDescriptor& other) {
    const cudnnBackendDescriptor_t native = other.get();
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &native);
  }
  void finalize() { DDP_CUDNN_CHECK(cudnnBackendFinalize(native_.get())); }
  /// False where cuDNN does not support what is described.
  bool try_finalize() { return cudnnBackendFinalize(native_.get()) == CUDNN_STATUS_SUCCESS; }

  /// Up to `most` values; how many there are.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
                   void* values) const {
    std::int64_t count = 0;
    DDP_CUDNN_CHECK(cudnnBackendGetAttribute(native_.get(), name, type, most, &count, values));
    return count;
  }

 private:
  core::cuda::Handle<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> native_;
};

/// An operation graph made ready to run, and all that it is made of.
struct GraphPlan {
  std::vector<GraphDescriptor> parts;  ///< the plan is the last one
  std::int64_t workspace = 0;
  cudnnBackendDescriptor_t native() const { return parts.back().get(); }
};

/// What engines may do to the numbers.
struct EngineRules {
  bool tensor_cores = true;      ///< float32 only: they round inputs to TF32
  bool rough_transforms = true;  ///< large Winograd tiles and Fourier transforms
  bool narrower_inputs = false;
  bool narrower_sums = false;
  std::int64_t most_workspace = std::int64_t{512} << 20;
};

/// Engine configurations that the heuristics propose for a graph, best first, those of the fallback list last, without
/// those that break the rules or whose results depend on timing.
std::vector<GraphDescriptor> engine_configs(const GraphDescriptor& graph, const EngineRules& rules);

/// A configuration made into a plan, moved into `plan.parts`. False when it is not supported or wants more workspace.
bool make_plan(cudnnHandle_t handle, GraphDescriptor&& config, const EngineRules& rules, GraphPlan& plan);

}  // namespace ddp::raw::cuda
