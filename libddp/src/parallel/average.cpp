#include "parallel/average.h"

#include <bit>

#include "core/thread_pool.h"
#include "ddp/core/error.h"
#include "tensor/elementwise.h"

namespace ddp::parallel {
namespace {

constexpr std::int64_t kGrain = 1 << 15;

template <class T>
void divide_elements(const Tensor& sum, int ranks) {
  auto* elements = static_cast<T*>(sum.data());
  using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto divisor = static_cast<Compute>(ranks);
  core::parallel_for(sum.device(), sum.numel(), kGrain, [elements, divisor](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      elements[i] = static_cast<T>(static_cast<Compute>(elements[i]) / divisor);
    }
  });
}

}  // namespace

void divide_(const Tensor& sum, int ranks) {
  if (sum.numel() == 0 || ranks == 1) return;
  if (std::has_single_bit(static_cast<unsigned>(ranks)) || !sum.device().is_cpu()) {
    raw::scale_(sum, 1.0 / ranks);
    return;
  }
  switch (sum.dtype()) {
    case DType::float32:
      divide_elements<float>(sum, ranks);
      break;
    case DType::float64:
      divide_elements<double>(sum, ranks);
      break;
    case DType::float16:
      divide_elements<Half>(sum, ranks);
      break;
    case DType::bfloat16:
      divide_elements<BFloat16>(sum, ranks);
      break;
    default:
      detail::fail<InvalidArgument>("gradients are floating point, not ", sum.dtype());
  }
}

}  // namespace ddp::parallel
