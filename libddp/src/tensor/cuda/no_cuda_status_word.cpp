#include "ddp/core/error.h"
#include "tensor/status_word.h"

namespace ddp::raw {
namespace {

[[noreturn]] void refuse() { ddp::detail::fail<NotAvailable>("this build of libddp has no CUDA"); }

}  // namespace

void write_status_word(const Tensor& /*word*/, std::span<const float> /*values*/) { refuse(); }
void judge_status_word(const Tensor& /*word*/, int /*ranks*/, std::uint32_t /*pass*/, const Tensor& /*state*/,
                       std::uint64_t* /*host*/, const std::uint64_t* /*failed*/) {
  refuse();
}
std::uint64_t* take_host_word(Device /*device*/) { refuse(); }

}  // namespace ddp::raw
