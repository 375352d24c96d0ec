#include "comm/nccl/make_group.h"
#include "ddp/core/error.h"

namespace ddp::comm {

bool nccl_is_built() { return false; }

std::shared_ptr<ProcessGroup> make_nccl_group(const NcclConfig& /*config*/, std::source_location /*where*/) {
  ddp::detail::fail<NotAvailable>(
      "backend nccl: this build has no NCCL (configure with -DDDP_WITH_CUDA=ON -DDDP_WITH_NCCL=ON); backend gloo works "
      "on CPU devices");
}

}  // namespace ddp::comm
