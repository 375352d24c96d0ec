#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// Elementary functions of float without branches or calls, so that a plain loop over them is vectorised;
/// the double versions call the C library. Errors stay within a few units in the last place, and
/// infinities, NaN and results below the normal range come out as from the C library. Polynomials are those
/// of S. Moshier's Cephes library (single precision).
namespace ddp::raw::cpu {

inline float exp_of(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  float c = x < -104.0F ? -104.0F : x;   // exp(-104) is below half the smallest number
  c = c > 89.0F ? 89.0F : c;             // exp(89) is above the largest
  const float t = c * 1.44269504088896341F + kMagic;
  const float n = t - kMagic;
  const float r = (c - n * 0.693359375F) - n * -2.12194440e-4F;
  float y = 1.9875691500e-4F;
  y = y * r + 1.3981999507e-3F;
  y = y * r + 8.3334519073e-3F;
  y = y * r + 4.1665795894e-2F;
  y = y * r + 1.6666665459e-1F;
  y = y * r + 5.0000001201e-1F;
  y = y * (r * r) + r + 1.0F;
  // Times 2^n in two factors, since 2^n itself may be out of range. NaN gives NaN times something.
  const std::int32_t whole = std::bit_cast<std::int32_t>(t) - std::bit_cast<std::int32_t>(kMagic);
  const std::int32_t half = whole >> 1;
  const float a = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23U);
  const float b = std::bit_cast<float>(static_cast<std::uint32_t>(whole - half + 127) << 23U);
  return y * a * b;
}

inline float log_of(float x) {
  const bool tiny = x < std::numeric_limits<float>::min();
  const float scaled = tiny ? x * 8388608.0F : x;
  const auto bits = std::bit_cast<std::uint32_t>(scaled);
  float m = std::bit_cast<float>((bits & 0x007fffffU) | 0x3f000000U);  // in [0.5, 1)
  float e = static_cast<float>(static_cast<std::int32_t>((bits >> 23U) & 0xffU) - 126 - (tiny ? 23 : 0));
  const bool low = m < 0.707106781186547524F;
  e = low ? e - 1.0F : e;
  m = (low ? m + m : m) - 1.0F;
  const float z = m * m;
  float y = 7.0376836292e-2F;
  y = y * m - 1.1514610310e-1F;
  y = y * m + 1.1676998740e-1F;
  y = y * m - 1.2420140846e-1F;
  y = y * m + 1.4249322787e-1F;
  y = y * m - 1.6668057665e-1F;
  y = y * m + 2.0000714765e-1F;
  y = y * m - 2.4999993993e-1F;
  y = y * m + 3.3333331174e-1F;
  y = y * m * z + e * -2.12194440e-4F - 0.5F * z;
  float result = m + y + e * 0.693359375F;
  result = x == std::numeric_limits<float>::infinity() ? x : result;
  result = x == 0.0F ? -std::numeric_limits<float>::infinity() : result;
  return x >= 0.0F ? result : std::numeric_limits<float>::quiet_NaN();  // negative, and NaN
}

inline float tanh_of(float x) {
  const float size = std::fabs(x);
  const float large = std::copysign(1.0F - 2.0F / (exp_of(size + size) + 1.0F), x);
  const float z = x * x;
  float y = -5.70498872745e-3F;
  y = y * z + 2.06390887954e-2F;
  y = y * z - 5.37397155531e-2F;
  y = y * z + 1.33314422036e-1F;
  y = y * z - 3.33332819422e-1F;
  return size < 0.625F ? y * z * x + x : large;
}

inline float sigmoid_of(float x) { return 1.0F / (1.0F + exp_of(-x)); }

/// Share of the standard normal distribution below x.
inline float normal_cdf(float x) {
  const float a = std::fabs(x) * 0.707106781186547524F;
  const float z = a * a;
  float t = 7.853861353153693e-5F;  // erf(a) / a for a < 1
  t = t * z - 8.010193625184903e-4F;
  t = t * z + 5.188327685732524e-3F;
  t = t * z - 2.685381193529856e-2F;
  t = t * z + 1.128358514861418e-1F;
  t = t * z - 3.761262582423300e-1F;
  t = t * z + 1.128379165726710F;
  const float q = 1.0F / a;
  const float y = q * q;
  float p = 2.326819970068386e-2F;  // erfc(a) * exp(a^2) * a for 1 <= a < 2
  p = p * y - 1.387039388740657e-1F;
  p = p * y + 3.687424674597105e-1F;
  p = p * y - 5.824733027278666e-1F;
  p = p * y + 6.210004621745983e-1F;
  p = p * y - 4.944515323274145e-1F;
  p = p * y + 3.404879937665872e-1F;
  p = p * y - 2.741127028184656e-1F;
  p = p * y + 5.638259427386472e-1F;
  float r = -1.047766399936249e+1F;  // the same for a >= 2
  r = r * y + 1.297719955372516e+1F;
  r = r * y - 7.495518717768503F;
  r = r * y + 2.921019019210786F;
  r = r * y - 1.015265279202700F;
  r = r * y + 4.218463358204948e-1F;
  r = r * y - 2.820767439740514e-1F;
  r = r * y + 5.641895067754075e-1F;
  const float tail = exp_of(-z) * q * (a < 2.0F ? p : r);
  const float erfc = a < 1.0F ? 1.0F - a * t : tail;
  return x < 0.0F ? 0.5F * erfc : 1.0F - 0.5F * erfc;
}
inline float normal_pdf(float x) { return exp_of(-0.5F * x * x) * 0.398942280401432678F; }

inline double exp_of(double x) { return std::exp(x); }
inline double log_of(double x) { return std::log(x); }
inline double tanh_of(double x) { return std::tanh(x); }
inline double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double normal_cdf(double x) { return 0.5 * std::erfc(-x * 0.707106781186547524401); }
inline double normal_pdf(double x) { return std::exp(-0.5 * x * x) * 0.398942280401432677940; }

}  // namespace ddp::raw::cpu
