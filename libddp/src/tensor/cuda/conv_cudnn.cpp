#include "tensor/cuda/conv_cudnn.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/cuda/cudnn.h"
#include "core/cuda/device_guard.h"
#include "ddp/core/precision.h"
#include "tensor/cuda/cudnn_graph.h"
#include "tensor/cuda/kernel_call.h"
#include "tensor/cuda/measure.h"
#include "tensor/cuda/scratch.h"

namespace ddp::raw::cuda {
namespace {

constexpr std::size_t kMeasured = 8;
constexpr std::size_t kMostPlans = 4096;

enum class Direction : std::uint8_t { forward, input_grad, weight_grad };

/// One convolution: of x, weight and y two are read and one is written.
struct Conv {
  Direction direction;
  const Tensor& x;
  const Tensor& weight;
  const Tensor& y;
  const ConvParams& params;

  const Tensor& output() const {
    return direction == Direction::forward ? y : (direction == Direction::input_grad ? x : weight);
  }
  std::array<void*, 3> pointers() const { return {x.data(), weight.data(), y.data()}; }
};
constexpr std::array<std::int64_t, 3> kIds = {1, 2, 3};  // of x, weight and y in a graph

struct Key {
  std::array<std::int64_t, 14> numbers{};
  std::uint32_t kinds = 0;
  bool operator==(const Key&) const = default;
};
struct Hash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t hash = key.kinds * 0x9e3779b97f4a7c15U;
    for (const std::int64_t number : key.numbers) {
      hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
  }
};

// At most 16 bytes: no engine asks for more.
std::uint32_t alignment_shift(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t shift = 4;
  while (shift > 0 && address % (std::uintptr_t{1} << shift) != 0) --shift;
  return shift;
}

Key key_of(const Conv& conv, bool tf32, bool measured) {
  const Dims& x = conv.x.sizes();
  const Dims& w = conv.weight.sizes();
  const ConvParams& p = conv.params;
  Key key;
  key.numbers = {x[0],       x[1],       x[2],        x[3],        w[0],         w[2],         w[3],
                 p.stride.h, p.stride.w, p.padding.h, p.padding.w, p.dilation.h, p.dilation.w, p.groups};
  key.kinds = static_cast<std::uint32_t>(conv.direction) << 8 | static_cast<std::uint32_t>(conv.x.dtype()) << 2 |
              static_cast<std::uint32_t>(measured) << 1 | static_cast<std::uint32_t>(tf32);
  for (const void* pointer : conv.pointers()) key.kinds = key.kinds << 3 | alignment_shift(pointer);
  return key;
}

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return CUDNN_DATA_DOUBLE;
    case DType::float16:
      return CUDNN_DATA_HALF;
    case DType::bfloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

GraphDescriptor describe(const Tensor& tensor, std::int64_t id) {
  GraphDescriptor result(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const cudnnDataType_t type = data_type(tensor.dtype());
  result.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  result.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span(tensor.sizes().begin(), tensor.sizes().size()));
  // A dimension of one element may have any stride: the ones of a row-major tensor are what engines expect.
  const Dims strides = contiguous_strides(tensor.sizes());
  result.set(CUDNN_ATTR_TENSOR_STRIDES, std::span(strides.begin(), strides.size()));
  result.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  result.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{1} << alignment_shift(tensor.data()));
  result.finalize();
  return result;
}

GraphDescriptor describe(const ConvParams& params, bool wide) {
  GraphDescriptor result(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnDataType_t compute = wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const std::array<std::int64_t, 2> stride = {params.stride.h, params.stride.w};
  const std::array<std::int64_t, 2> padding = {params.padding.h, params.padding.w};
  const std::array<std::int64_t, 2> dilation = {params.dilation.h, params.dilation.w};
  result.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  result.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  result.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  result.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
  result.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding);
  result.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
  result.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation);
  result.finalize();
  return result;
}

/// The names of one direction's attributes.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x, weight, y, conv, alpha, beta;
};
constexpr Names names_of(Direction direction) {
  switch (direction) {
    case Direction::input_grad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Direction::weight_grad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

/// The graph of one convolution: its last part.
std::vector<GraphDescriptor> graph_of(const Conv& conv, cudnnHandle_t handle) {
  const bool wide = conv.x.dtype() == DType::float64;
  const Names names = names_of(conv.direction);
  std::vector<GraphDescriptor> parts;
  parts.push_back(describe(conv.x, kIds[0]));
  parts.push_back(describe(conv.weight, kIds[1]));
  parts.push_back(describe(conv.y, kIds[2]));
  parts.push_back(describe(conv.params, wide));
  GraphDescriptor operation(names.operation);
  operation.set(names.x, parts[0]);
  operation.set(names.weight, parts[1]);
  operation.set(names.y, parts[2]);
  operation.set(names.conv, parts[3]);
  const std::array<double, 2> scale = {1, 0};
  const std::array<float, 2> narrow_scale = {1, 0};
  for (const int i : {0, 1}) {
    const auto at = static_cast<std::size_t>(i);
    const cudnnBackendAttributeName_t name = i == 0 ? names.alpha : names.beta;
    if (wide) {
      operation.set(name, CUDNN_TYPE_DOUBLE, 1, &scale[at]);
    } else {
      operation.set(name, CUDNN_TYPE_FLOAT, 1, &narrow_scale[at]);
    }
  }
  operation.finalize();
  GraphDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.finalize();
  parts.push_back(std::move(operation));
  parts.push_back(std::move(graph));
  return parts;
}

/// The addresses of a call, as cuDNN takes them. Kept while the next calls have the same ones.
struct Pack {
  std::optional<GraphDescriptor> native;
  std::array<void*, 3> pointers{};
  void* workspace = nullptr;

  cudnnBackendDescriptor_t with(const std::array<void*, 3>& data, void* room) {
    if (!native || pointers != data || workspace != room) {
      native.emplace(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      native->set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data.data());
      native->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kIds);
      native->set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &room);
      native->finalize();
      pointers = data;
      workspace = room;
    }
    return native->get();
  }
};

/// A plan that was chosen, or none: then cuDNN is not asked again.
struct Chosen {
  std::optional<GraphPlan> plan;
  Pack pack;
};

cudnnStatus_t run(const Conv& conv, cudnnHandle_t handle, const GraphPlan& plan, Pack& pack, void* workspace) {
  return cudnnBackendExecute(handle, plan.native(), pack.with(conv.pointers(), workspace));
}

std::optional<GraphPlan> choose(const Conv& conv, bool tf32, bool measured, StreamView stream, cudnnHandle_t handle) {
  const bool strict = conv.x.dtype() == DType::float32 && !tf32;
  EngineRules rules;
  rules.tensor_cores = !strict;
  rules.rough_transforms = !strict && conv.x.dtype() != DType::float64;
  std::vector<GraphDescriptor> parts = graph_of(conv, handle);
  std::optional<GraphPlan> best;
  double best_ms = 0;
  std::size_t tried = 0;
  for (GraphDescriptor& config : engine_configs(parts.back(), rules)) {
    GraphPlan plan;
    if (!make_plan(handle, std::move(config), rules, plan)) continue;
    if (!measured) {
      best = std::move(plan);
      break;
    }
    const Scratch<std::byte> workspace(plan.workspace, stream.device());
    Pack pack;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    const double ms = measure(stream, [&] {
      if (status == CUDNN_STATUS_SUCCESS) status = run(conv, handle, plan, pack, workspace.data());
    });
    if (status == CUDNN_STATUS_SUCCESS && (!best || ms < best_ms)) {
      best = std::move(plan);
      best_ms = ms;
    }
    if (++tried == kMeasured) break;
  }
  if (best) {  // a plan refers to what its graph is made of
    best->parts.insert(best->parts.begin(), std::make_move_iterator(parts.begin()),
                       std::make_move_iterator(parts.end()));
  }
  return best;
}

class ConvPlans final : public core::cuda::CudnnExtension {
 public:
  Chosen& get(const Conv& conv, StreamView stream, cudnnHandle_t handle) {
    const bool tf32 = conv.x.dtype() == DType::float32 && allow_tf32();
    bool measured = autotune();
    Key key = key_of(conv, tf32, measured);
    auto found = chosen_.find(key);
    if (found == chosen_.end() && measured && !may_measure(stream)) {
      measured = false;  // for now: what is not measured is remembered as such
      key = key_of(conv, tf32, measured);
      found = chosen_.find(key);
    }
    if (found != chosen_.end()) [[likely]] {
      return found->second;
    }
    if (chosen_.size() >= kMostPlans) chosen_.clear();  // sizes that never come again
    Chosen& chosen = chosen_[key];
    try {
      chosen.plan = choose(conv, tf32, measured, stream, handle);
    } catch (const DeviceError&) {  // a convolution that cuDNN cannot even describe
      chosen.plan.reset();
    }
    return chosen;
  }

 private:
  std::unordered_map<Key, Chosen, Hash> chosen_;
};

const char* label(Direction direction) {
  return direction == Direction::forward
             ? "cudnn convolution"
             : (direction == Direction::input_grad ? "cudnn input gradient" : "cudnn weight gradient");
}

bool run(const Conv& conv) {
  const Device device = conv.x.device();
  const StreamView stream = current_stream(device);
  const core::cuda::DeviceGuard guard(device);
  core::cuda::CudnnContext& context = core::cuda::cudnn_context(stream);
  if (!context.extension) context.extension = std::make_unique<ConvPlans>();
  Chosen& chosen = static_cast<ConvPlans&>(*context.extension).get(conv, stream, context.handle);
  if (!chosen.plan) return false;
  const Scratch<std::byte> workspace(chosen.plan->workspace, device);
  DDP_CUDNN_CHECK(run(conv, context.handle, *chosen.plan, chosen.pack, workspace.data()));
  report_launch(label(conv.direction), device);
  return true;
}

}  // namespace

bool has_cudnn() { return true; }
bool cudnn_forward(const Tensor& x, const Tensor& weight, const ConvParams& params, const Tensor& out) {
  return run({Direction::forward, x, weight, out, params});
}
bool cudnn_input_grad(const Tensor& grad, const Tensor& weight, const ConvParams& params, const Tensor& out) {
  return run({Direction::input_grad, out, weight, grad, params});
}
bool cudnn_weight_grad(const Tensor& grad, const Tensor& x, const ConvParams& params, const Tensor& out) {
  return run({Direction::weight_grad, x, out, grad, params});
}

}  // namespace ddp::raw::cuda
