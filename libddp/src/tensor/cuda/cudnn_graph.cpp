#include "tensor/cuda/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ddp::raw::cuda {
namespace {

bool allowed(const GraphDescriptor& config, const EngineRules& rules) {
  const GraphDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t native = engine.get();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &native);
  std::array<cudnnBackendNumericalNote_t, 32> notes{};
  const std::int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                        static_cast<std::int64_t>(notes.size()), notes.data());
  return std::none_of(notes.begin(), notes.begin() + count, [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return !rules.tensor_cores;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return !rules.narrower_inputs;
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return !rules.narrower_sums;
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return !rules.rough_transforms;
      default:
        return false;
    }
  });
}

void append_configs(const GraphDescriptor& graph, cudnnBackendHeurMode_t mode, const EngineRules& rules,
                    std::vector<GraphDescriptor>& configs) {
  GraphDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!heuristics.try_finalize()) return;
  const std::int64_t count = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<GraphDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> natives;
  for (std::int64_t i = 0; i < count; ++i) {
    found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    natives.push_back(found.back().get());
  }
  const std::int64_t filled =
      heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, natives.data());
  for (std::int64_t i = 0; i < std::min(count, filled); ++i) {
    GraphDescriptor& config = found[static_cast<std::size_t>(i)];
    if (allowed(config, rules)) configs.push_back(std::move(config));
  }
}

}  // namespace

std::vector<GraphDescriptor> engine_configs(const GraphDescriptor& graph, const EngineRules& rules) {
  std::vector<GraphDescriptor> configs;
  append_configs(graph, CUDNN_HEUR_MODE_A, rules, configs);
  append_configs(graph, CUDNN_HEUR_MODE_FALLBACK, rules, configs);
  return configs;
}

bool make_plan(cudnnHandle_t handle, GraphDescriptor&& config, const EngineRules& rules, GraphPlan& plan) {
  GraphDescriptor native(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  native.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  native.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (!native.try_finalize()) return false;
  native.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &plan.workspace);
  if (plan.workspace > rules.most_workspace) return false;
  plan.parts.push_back(std::move(config));
  plan.parts.push_back(std::move(native));
  return true;
}

}  // namespace ddp::raw::cuda
