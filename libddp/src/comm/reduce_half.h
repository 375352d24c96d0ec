#pragma once

#include <cstddef>
#include <cstdint>

#include "ddp/core/dtype.h"

namespace ddp::comm {

/// Conversion of runs of 16-bit floats, the same bits as Half's and BFloat16's own (but for the
/// payload of a NaN).
template <class T>
void to_floats(float* dst, const std::uint16_t* src, std::size_t n);
template <class T>
void from_floats(std::uint16_t* dst, const float* src, std::size_t n);

template <>
void to_floats<Half>(float* dst, const std::uint16_t* src, std::size_t n);
template <>
void from_floats<Half>(std::uint16_t* dst, const float* src, std::size_t n);
template <>
void to_floats<BFloat16>(float* dst, const std::uint16_t* src, std::size_t n);
template <>
void from_floats<BFloat16>(std::uint16_t* dst, const float* src, std::size_t n);

}  // namespace ddp::comm
