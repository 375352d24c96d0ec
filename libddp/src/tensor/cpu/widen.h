#pragma once

#include "ddp/tensor/tensor.h"
#include "tensor/copy.h"

/// The dense operations compute float16 and bfloat16 in float32: inputs are converted first, the result last.
namespace ddp::raw::cpu {

inline bool is_narrow(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

inline Tensor widen(const Tensor& x) { return x.defined() && is_narrow(x.dtype()) ? to(x, DType::float32) : x; }

/// A float32 stand-in for the narrow `out`: run(stand_in) fills it (or adds to it), then it is converted back.
template <class F>
void through_float32(const Tensor& out, bool accumulate, F&& run) {
  const Tensor wide = accumulate ? to(out, DType::float32) : empty(out.sizes(), {DType::float32, out.device()});
  run(wide);
  copy_(out, wide);
}

}  // namespace ddp::raw::cpu
