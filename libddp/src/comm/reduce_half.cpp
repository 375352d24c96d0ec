#include "comm/reduce_half.h"

#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ddp::comm {
namespace {

#if defined(__x86_64__)
// Chosen at run time, so that the library runs on every x86-64.
bool have_f16c() {
  static const bool have = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
  return have;
}

__attribute__((target("avx2,f16c"))) std::size_t widen_f16c(float* dst, const std::uint16_t* src, std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i));
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(half));
  }
  return i;
}

__attribute__((target("avx2,f16c"))) std::size_t narrow_f16c(std::uint16_t* dst, const float* src, std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), half);
  }
  return i;
}
#endif

}  // namespace

template <>
void to_floats<Half>(float* dst, const std::uint16_t* src, std::size_t n) {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (have_f16c()) i = widen_f16c(dst, src, n);
#endif
  for (; i < n; ++i) dst[i] = Half::to_float(src[i]);
}

template <>
void from_floats<Half>(std::uint16_t* dst, const float* src, std::size_t n) {
  std::size_t i = 0;
#if defined(__x86_64__)
  if (have_f16c()) i = narrow_f16c(dst, src, n);
#endif
  for (; i < n; ++i) dst[i] = Half::from_float(src[i]);
}

template <>
void to_floats<BFloat16>(float* dst, const std::uint16_t* src, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) dst[i] = std::bit_cast<float>(static_cast<std::uint32_t>(src[i]) << 16);
}

template <>
void from_floats<BFloat16>(std::uint16_t* dst, const float* src, std::size_t n) {
  // Without branches, so that it vectorises; otherwise as BFloat16::from_float.
  for (std::size_t i = 0; i < n; ++i) {
    const auto x = std::bit_cast<std::uint32_t>(src[i]);
    const std::uint32_t rounded = (x + 0x7fffU + ((x >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (x >> 16) | 0x40U;
    dst[i] = static_cast<std::uint16_t>((x & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
  }
}

}  // namespace ddp::comm
