#include "comm/gloo/make_group.h"
#include "ddp/core/error.h"

namespace ddp::comm {

std::shared_ptr<ProcessGroup> make_gloo_group(const GlooConfig& /*config*/, std::source_location /*where*/) {
  ddp::detail::fail<NotAvailable>(
      "backend gloo: this build has no Gloo; install libgloo-dev (Debian, Ubuntu) and configure with "
      "-DDDP_WITH_GLOO=ON");
}

}  // namespace ddp::comm
