#include "tensor/cpu/convert.h"

namespace ddp::raw::cpu {

void convert_to_floating(const Tensor& destination, const Tensor& source) {
  dispatch_floating("copy_", destination.dtype(), [&]<class To>(TypeTag<To>) { convert_to<To>(destination, source); });
}

}  // namespace ddp::raw::cpu
