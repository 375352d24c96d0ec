#include "ddp/tensor/dims.h"

#include <algorithm>

#include "tensor/sizes.h"

namespace ddp {

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = Dims::filled(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) {
    DDP_CHECK(!__builtin_mul_overflow(strides[i], std::max<std::int64_t>(sizes[i], 1), &strides[i - 1]),
              InvalidArgument, "the strides of sizes ", sizes, " do not fit 64 bits");
  }
  return strides;
}

Dims broadcast_sizes(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims result = longer;
  const std::size_t shift = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    std::int64_t& size = result[i + shift];
    if (size == shorter[i]) continue;
    DDP_CHECK(size == 1 || shorter[i] == 1, InvalidArgument, "sizes ", a, " and ", b,
              " do not broadcast: each pair of sizes, from the back, must be equal or hold a 1");
    size = size == 1 ? shorter[i] : size;
  }
  return result;
}

std::size_t wrap_dim(std::int64_t dim, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  DDP_CHECK(dim >= -signed_rank && dim < signed_rank, InvalidArgument, "dimension ", dim, " of a tensor with ", rank,
            " dimensions; allowed: ", -signed_rank, " to ", signed_rank - 1);
  return static_cast<std::size_t>(dim < 0 ? dim + signed_rank : dim);
}

std::int64_t raw::checked_numel(const Dims& sizes) {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) {
    if (!__builtin_mul_overflow(result, size, &result)) continue;
    DDP_CHECK(std::find(sizes.begin(), sizes.end(), 0) != sizes.end(), InvalidArgument, "sizes ", sizes,
              " have more elements than 64 bits can count");
    return 0;
  }
  return result;
}

}  // namespace ddp
