#pragma once

#include <cstdint>

#include "tensor/tensor_impl.h"

namespace ddp::raw {

/// Calls `visit(offset)` with the element offset from data() of each element, in row-major order.
template <class Visit>
void for_each_offset(const Dims& sizes, const Dims& strides, const Visit& visit) {
  const std::int64_t count = sizes.product();
  Dims index = Dims::filled(sizes.size(), 0);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    visit(offset);
    for (std::size_t d = sizes.size(); d-- > 0;) {
      offset += strides[d];
      if (++index[d] < sizes[d]) break;
      offset -= strides[d] * sizes[d];
      index[d] = 0;
    }
  }
}

/// Between any two element types; the 16-bit floats go through float.
template <class To, class From>
To convert(From value) {
  constexpr bool from_short = std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>;
  constexpr bool to_short = std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (from_short) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (to_short) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace ddp::raw
