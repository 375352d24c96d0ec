#include "tensor/cpu/convert.h"

namespace ddp::raw::cpu {

void convert_to_integral(const Tensor& destination, const Tensor& source) {
  if (destination.dtype() == DType::boolean) return convert_to<bool>(destination, source);
  dispatch_integral("copy_", destination.dtype(), [&]<class To>(TypeTag<To>) { convert_to<To>(destination, source); });
}

}  // namespace ddp::raw::cpu
