#pragma once

#include "ddp/tensor/tensor.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/dispatch.h"

namespace ddp::raw::cpu {

/// Copies with conversion into elements of type To, from any dtype.
template <class To>
void convert_to(const Tensor& destination, const Tensor& source) {
  dispatch_all("copy_", source.dtype(), [&]<class From>(TypeTag<From>) {
    if constexpr (!std::is_same_v<To, From>) {
      map<To, From>(destination, [](auto value) { return value; }, source);
    }
  });
}

/// By the destination's dtype; in two files, since each pair of dtypes is a loop of its own.
void convert_to_floating(const Tensor& destination, const Tensor& source);
void convert_to_integral(const Tensor& destination, const Tensor& source);

}  // namespace ddp::raw::cpu
