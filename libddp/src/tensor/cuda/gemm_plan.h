#pragma once

#include <array>
#include <cstdint>

#include "ddp/core/device.h"
#include "ddp/core/dtype.h"

/// One call of cublasLtMatmul, with what can be remembered about it remembered.
namespace ddp::raw::cuda {

/// What is done beside the product; values are those of cublasLtEpilogue_t.
enum class Epilogue : std::uint32_t { none = 1, relu = 2, bias = 4, relu_bias = 6, bias_grad_b = 512 };

/// D [m, n] = op(A) [m, k] x op(B) [k, n] (+ D), column-major, as cuBLAS counts. Leading dimensions and batch strides
/// in elements; a batch stride of 0 repeats an input.
struct GemmCall {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldd = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_d = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  DType dtype = DType::float32;
  Epilogue epilogue = Epilogue::none;
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* bias = nullptr;  ///< of m elements; the epilogue bias_grad_b writes n
  bool accumulate = false;
};

/// Queues it on the device's current stream. False, with nothing done, when cuBLASLt has no algorithm for it.
bool run_gemm(const GemmCall& call, Device device);

}  // namespace ddp::raw::cuda
