#include "ddp/nn/dropout.h"

#include "ddp/autograd/functions.h"
#include "ddp/core/error.h"

namespace ddp::nn {

Dropout::Dropout(double p, Generator* generator) : p_(p), generator_(generator) {
  DDP_CHECK(p >= 0 && p < 1, InvalidArgument, "Dropout: p is ", p, "; it must be in [0, 1)");
}

Tensor Dropout::forward(const Tensor& x) { return dropout(x, p_, is_training(), generator_); }

}  // namespace ddp::nn
