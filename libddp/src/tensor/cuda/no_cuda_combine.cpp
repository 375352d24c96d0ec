#include "ddp/core/error.h"
#include "tensor/combine.h"

namespace ddp::raw {

void combine(const std::vector<Tensor>& /*sources*/, const std::vector<Tensor>& /*outputs*/, Combine /*op*/,
             int /*divisor*/) {
  ddp::detail::fail<NotAvailable>("combine: this build of libddp has no CUDA (configure with DDP_WITH_CUDA=ON)");
}

void divide_(const Tensor& /*x*/, int /*divisor*/) {
  ddp::detail::fail<NotAvailable>("divide: this build of libddp has no CUDA (configure with DDP_WITH_CUDA=ON)");
}

}  // namespace ddp::raw
