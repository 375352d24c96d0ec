#include "trace/nvtx/nvtx.h"

namespace ddp::trace::nvtx {

bool wanted() noexcept { return false; }
void push(std::string_view /*kind*/, std::string_view /*label*/) noexcept {}
void pop() noexcept {}

}  // namespace ddp::trace::nvtx
