#include "tensor/cuda/gemm_plan.h"

#include <cstddef>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "core/cuda/cublas.h"
#include "core/cuda/device_guard.h"
#include "ddp/core/precision.h"
#include "tensor/cuda/kernel_call.h"
#include "tensor/cuda/measure.h"
#include "tensor/cuda/scratch.h"

namespace ddp::raw::cuda {
namespace {

// What cuBLAS recommends: kernels of Hopper and later want more room.
constexpr std::size_t kWorkspaceHopper = std::size_t{32} << 20;
constexpr std::size_t kWorkspace = std::size_t{4} << 20;
constexpr int kCandidates = 8;
constexpr std::size_t kMostPlans = 4096;

/// What an algorithm is chosen for. All but the addresses of a call, of which the alignment counts.
struct Key {
  std::array<std::int64_t, 11> numbers{};
  std::uint64_t kinds = 0;
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

// 0 to 4: 1 (of no use), 2, 4, 8 and 16 bytes; 5: what allocations have.
std::uint64_t alignment_class(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % 256 == 0) return 5;
  std::uint64_t result = 4;
  while (result > 0 && address % (std::uintptr_t{1} << result) != 0) --result;
  return result;
}
std::uint32_t alignment_bytes(std::uint64_t kind) { return kind == 5 ? 256U : 1U << kind; }

Key key_of(const GemmCall& call, bool tf32, bool measured, Device device) {
  Key key;
  key.numbers = {call.m,     call.n,        call.k,        call.lda,      call.ldb,    call.ldd,
                 call.batch, call.stride_a, call.stride_b, call.stride_d, device.index};
  const bool bits[] = {call.transpose_a, call.transpose_b, tf32, measured};
  std::uint64_t kinds = 0;
  for (const bool bit : bits) kinds = kinds << 1 | static_cast<std::uint64_t>(bit);
  kinds = kinds << 10 | static_cast<std::uint64_t>(call.epilogue);
  kinds = kinds << 4 | static_cast<std::uint64_t>(call.dtype);
  for (const void* pointer : {call.a, call.b, static_cast<const void*>(call.d), static_cast<const void*>(call.bias)}) {
    kinds = kinds << 3 | alignment_class(pointer);
  }
  key.kinds = kinds;
  return key;
}

cudaDataType data_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return CUDA_R_64F;
    case DType::float16:
      return CUDA_R_16F;
    case DType::bfloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

/// What is found by asking or measuring, and shared by all threads.
struct Choice {
  bool usable = false;
  std::size_t workspace = 0;
  cublasLtMatmulAlgo_t algorithm{};
};

/// A choice with the descriptors that calls of it need. One thread's: a call writes the bias into it.
struct Plan {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a{};
  cublasLtMatrixLayoutOpaque_t b{};
  cublasLtMatrixLayoutOpaque_t d{};
  Choice choice;
};

void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name, const void* value, std::size_t bytes) {
  DDP_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, name, value, bytes));
}

void describe(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType type, std::int64_t rows, std::int64_t columns,
              std::int64_t leading, std::int64_t batch, std::int64_t stride) {
  DDP_CUBLAS_CHECK(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), leading));
  if (batch == 1) return;
  const auto count = static_cast<std::int32_t>(batch);
  DDP_CUBLAS_CHECK(
      cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
  DDP_CUBLAS_CHECK(
      cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
}

void describe(Plan& plan, const GemmCall& call, bool tf32) {
  const cudaDataType type = data_type(call.dtype);
  const bool wide = call.dtype == DType::float64;
  const cublasComputeType_t compute =
      wide ? CUBLAS_COMPUTE_64F : (tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
  DDP_CUBLAS_CHECK(cublasLtMatmulDescInit(&plan.operation, compute, wide ? CUDA_R_64F : CUDA_R_32F));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  if (call.transpose_a) set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed));
  if (call.transpose_b) set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, &transposed, sizeof(transposed));
  if (call.epilogue != Epilogue::none) {
    const auto epilogue = static_cast<std::uint32_t>(call.epilogue);
    set(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    set(&plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.bias, sizeof(call.bias));
  }
  describe(plan.a, type, call.transpose_a ? call.k : call.m, call.transpose_a ? call.m : call.k, call.lda, call.batch,
           call.stride_a);
  describe(plan.b, type, call.transpose_b ? call.n : call.k, call.transpose_b ? call.k : call.n, call.ldb, call.batch,
           call.stride_b);
  describe(plan.d, type, call.m, call.n, call.ldd, call.batch, call.stride_d);
}

cublasStatus_t launch(Plan& plan, const GemmCall& call, const Choice& choice, bool accumulate, void* d, void* workspace,
                      Device device) {
  const float narrow[] = {1.0F, accumulate ? 1.0F : 0.0F};
  const double wide[] = {1.0, accumulate ? 1.0 : 0.0};
  const bool is_wide = call.dtype == DType::float64;
  const void* alpha = is_wide ? static_cast<const void*>(&wide[0]) : &narrow[0];
  const void* beta = is_wide ? static_cast<const void*>(&wide[1]) : &narrow[1];
  return cublasLtMatmul(core::cuda::cublas_handle(device), &plan.operation, alpha, call.a, &plan.a, call.b, &plan.b,
                        beta, d, &plan.d, d, &plan.d, &choice.algorithm, workspace, choice.workspace,
                        current_stream(device).native());
}

std::size_t workspace_limit(Device device) {
  static thread_local std::array<int, kMaxCpuDevices> majors{};
  int& major = majors[static_cast<std::size_t>(device.index)];
  if (major == 0) DDP_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  return major >= 9 ? kWorkspaceHopper : kWorkspace;
}

template <class T>
void prefer(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t name, T value) {
  DDP_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, name, &value, sizeof(value)));
}

/// The candidates, best first by cuBLASLt's own estimate.
int candidates(Plan& plan, const GemmCall& call, int wanted, cublasLtMatmulHeuristicResult_t* results, Device device) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  DDP_CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_limit(device)));
  const auto align = [](const void* pointer) { return alignment_bytes(alignment_class(pointer)); };
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align(call.a));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align(call.b));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align(call.d));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align(call.d));
  if (call.dtype == DType::float16 || call.dtype == DType::bfloat16) {
    // Parts of a sum are kept in float32, never in the narrow type of the result.
    prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  }
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(core::cuda::cublas_handle(device), &plan.operation, &plan.a, &plan.b, &plan.d,
                                     &plan.d, &preference, wanted, results, &found);
  // Both say that there is none: the second for combinations that it does not know at all.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return 0;
  DDP_CUBLAS_CHECK(status);
  return found;
}

Choice choose(Plan& plan, const GemmCall& call, bool measured, Device device) {
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
  const int found = candidates(plan, call, measured ? kCandidates : 1, results.data(), device);
  Choice best;
  double best_ms = 0;
  // A sum cannot be made several times in place.
  const std::int64_t extent = (call.batch - 1) * call.stride_d + (call.n - 1) * call.ldd + call.m;
  std::optional<Scratch<std::byte>> stand_in;
  if (measured && call.accumulate) {
    stand_in.emplace(extent * static_cast<std::int64_t>(size_of(call.dtype)), device);
  }
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    const Choice choice{true, result.workspaceSize, result.algo};
    if (!measured) return choice;
    const Scratch<std::byte> workspace(static_cast<std::int64_t>(choice.workspace), device);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const double ms = measure(current_stream(device), [&] {
      if (status != CUBLAS_STATUS_SUCCESS) return;
      status = launch(plan, call, choice, false, stand_in ? stand_in->data() : call.d, workspace.data(), device);
    });
    if (status == CUBLAS_STATUS_SUCCESS && (!best.usable || ms < best_ms)) {
      best = choice;
      best_ms = ms;
    }
  }
  return best;
}

/// The choices of the process. A thread comes here once for each key.
class Choices {
 public:
  template <class Make>
  Choice get(const Key& key, const Make& make) {
    const std::lock_guard lock(mutex_);  // also while measuring: two at once would disturb each other
    if (const auto found = choices_.find(key); found != choices_.end()) return found->second;
    if (choices_.size() >= kMostPlans) choices_.clear();
    const Choice choice = make();
    choices_.emplace(key, choice);
    return choice;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Key, Choice, Hash> choices_;
};

Choices& choices() {
  static auto* all = new Choices();
  return *all;
}

Plan& plan_for(const GemmCall& call, Device device) {
  const bool tf32 = call.dtype == DType::float32 && allow_tf32();
  bool measured = autotune();
  Key key = key_of(call, tf32, measured, device);
  static thread_local std::unordered_map<Key, Plan, Hash> plans;
  auto found = plans.find(key);
  if (found == plans.end() && measured && !may_measure(current_stream(device))) {
    measured = false;  // for now: what is not measured is remembered as such
    key = key_of(call, tf32, measured, device);
    found = plans.find(key);
  }
  if (found != plans.end()) [[likely]] {
    return found->second;
  }
  if (plans.size() >= kMostPlans) plans.clear();  // sizes that never come again
  Plan plan;
  describe(plan, call, tf32);
  const Choice choice = choices().get(key, [&] { return choose(plan, call, measured, device); });
  Plan& kept = plans[key];
  describe(kept, call, tf32);  // anew, not copied: what is in a descriptor is cuBLAS's affair
  kept.choice = choice;
  return kept;
}

}  // namespace

bool run_gemm(const GemmCall& call, Device device) {
  const core::cuda::DeviceGuard guard(device);
  Plan& plan = plan_for(call, device);
  if (!plan.choice.usable) return false;
  if (call.epilogue != Epilogue::none) {
    set(&plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.bias, sizeof(call.bias));
  }
  const Scratch<std::byte> workspace(static_cast<std::int64_t>(plan.choice.workspace), device);
  const cublasStatus_t status = launch(plan, call, plan.choice, call.accumulate, call.d, workspace.data(), device);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    plan.choice.usable = false;
    return false;
  }
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
    core::cuda::fail_cublas(
        status, concat("cublasLtMatmul(m ", call.m, ", n ", call.n, ", k ", call.k, ", ", call.dtype, ")").c_str(),
        __FILE__, __LINE__);
  }
  report_launch("cublasLtMatmul", device);
  return true;
}

}  // namespace ddp::raw::cuda
