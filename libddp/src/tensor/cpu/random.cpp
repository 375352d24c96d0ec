#include <algorithm>
#include <cmath>
#include <span>

#include "core/thread_pool.h"
#include "tensor/backend/random_backend.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/dispatch.h"
#include "tensor/philox.h"

namespace ddp::raw {

namespace {

constexpr std::int64_t kUnit = 1024;  // elements made at a time; a multiple of a block's four numbers
constexpr std::int64_t kLanes = 16;   // blocks side by side

// words[0 .. 4 * blocks) = the numbers of `blocks` blocks (a multiple of kLanes) from `first` on.
void generate(std::uint64_t seed, std::uint64_t first, std::int64_t blocks, std::uint32_t* words) {
  for (std::int64_t b = 0; b < blocks; b += kLanes) {
    std::uint32_t c0[kLanes];
    std::uint32_t c1[kLanes];
    std::uint32_t c2[kLanes] = {};
    std::uint32_t c3[kLanes] = {};
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const std::uint64_t number = first + static_cast<std::uint64_t>(b + l);
      c0[l] = static_cast<std::uint32_t>(number);
      c1[l] = static_cast<std::uint32_t>(number >> 32U);
    }
    auto k0 = static_cast<std::uint32_t>(seed);
    auto k1 = static_cast<std::uint32_t>(seed >> 32U);
    for (int round = 0; round < 10; ++round) {
      for (std::int64_t l = 0; l < kLanes; ++l) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * c0[l];
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * c2[l];
        c0[l] = static_cast<std::uint32_t>(product1 >> 32U) ^ c1[l] ^ k0;
        c1[l] = static_cast<std::uint32_t>(product1);
        c2[l] = static_cast<std::uint32_t>(product0 >> 32U) ^ c3[l] ^ k1;
        c3[l] = static_cast<std::uint32_t>(product0);
      }
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    for (std::int64_t l = 0; l < kLanes; ++l) {
      std::uint32_t* to = words + 4 * (b + l);
      to[0] = c0[l];
      to[1] = c1[l];
      to[2] = c2[l];
      to[3] = c3[l];
    }
  }
}

// Calls work(first element, count, words) for pieces of kUnit elements that take `numbers` words each. What
// an element gets depends on its index alone, so it does not matter how threads share the pieces.
template <class Work>
void for_units(Device device, std::int64_t n, int numbers, RandomState state, Work&& work) {
  const std::int64_t units = (n + kUnit - 1) / kUnit;
  const std::int64_t blocks = kUnit * numbers / 4;
  core::parallel_for(device, units, 8, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t words[2 * kUnit];
    for (std::int64_t u = begin; u < end; ++u) {
      const std::int64_t count = std::min(kUnit, n - u * kUnit);
      const std::int64_t needed = (count * numbers + 4 * kLanes - 1) / (4 * kLanes) * kLanes;
      generate(state.seed, state.block + static_cast<std::uint64_t>(u * blocks), needed, words);
      work(u * kUnit, count, static_cast<const std::uint32_t*>(words));
    }
  });
}

std::uint64_t wide(const std::uint32_t* words, std::int64_t i) {
  return (std::uint64_t{words[2 * i]} << 32U) | words[2 * i + 1];
}

// Fraction in [0, 1) with as many bits as T holds exactly, in the compute type.
template <class T>
ComputeType<T> fraction(const std::uint32_t* words, std::int64_t i) {
  if constexpr (std::is_same_v<T, double>) {
    return static_cast<double>(wide(words, i) >> 11U) * 0x1p-53;
  } else {
    constexpr unsigned kBits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, Half> ? 11 : 8;
    return static_cast<float>(words[i] >> (32U - kBits)) * (1.0F / static_cast<float>(1U << kBits));
  }
}

// High 64 bits of the product.
std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(a) * b) >> 64U);
}

class CpuRandom : public RandomBackend {
 public:
  void uniform(const Tensor& x, double low, double high, double largest, RandomState state) override {
    dispatch_floating("uniform_", x.dtype(), [&]<class T>(TypeTag<T>) {
      using C = ComputeType<T>;
      T* to = x.data_ptr<T>();
      const C from = static_cast<C>(low);
      const C width = static_cast<C>(high - low);
      const C limit = static_cast<C>(largest);
      for_units(x.device(), x.numel(), std::is_same_v<T, double> ? 2 : 1, state,
                [&](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                  for (std::int64_t i = 0; i < count; ++i) {
                    // One rounding, whether or not the compiler fuses: bits must not depend on flags.
                    const T value = cpu::store<T>(std::fma(fraction<T>(words, i), width, from));
                    to[first + i] = cpu::load(value) > limit ? cpu::store<T>(limit) : value;
                  }
                });
    });
  }

  void normal(const Tensor& x, double mean, double deviation, RandomState state) override {
    dispatch_floating("normal_", x.dtype(), [&]<class T>(TypeTag<T>) {
      T* to = x.data_ptr<T>();
      for_units(x.device(), x.numel(), 1, state,
                [&](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                  for (std::int64_t i = 0; i < count; i += 2) {
                    const double radius = std::sqrt(-2 * std::log((words[i] + 1.0) * 0x1p-32)) * deviation;
                    const double angle = words[i + 1] * (0x1p-32 * 6.283185307179586477);
                    to[first + i] = cpu::store<T>(mean + radius * std::cos(angle));
                    if (i + 1 < count) to[first + i + 1] = cpu::store<T>(mean + radius * std::sin(angle));
                  }
                });
    });
  }

  void randint(const Tensor& x, std::int64_t low, std::uint64_t range, RandomState state) override {
    dispatch_all("randint_", x.dtype(), [&]<class T>(TypeTag<T>) {
      T* to = x.data_ptr<T>();
      for_units(x.device(), x.numel(), 2, state,
                [&](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                  for (std::int64_t i = 0; i < count; ++i) {
                    const std::uint64_t above = multiply_high(wide(words, i), range);
                    to[first + i] = cpu::store<T>(static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + above));
                  }
                });
    });
  }

  void dropout(const Tensor& x, std::uint64_t threshold, double scale, RandomState state, const Tensor& y,
               const Tensor& mask) override {
    dispatch_floating("dropout", x.dtype(), [&]<class T>(TypeTag<T>) {
      using C = ComputeType<T>;
      const C factor = static_cast<C>(scale);
      const auto plan = cpu::make_plan<1>({&x}, true);  // row-major order of x, whatever its strides
      T* to = y.data_ptr<T>();
      auto* kept = mask.data_ptr<std::uint8_t>();
      for_units(x.device(), x.numel(), 1, state,
                [&](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                  for (std::int64_t i = 0; i < count; ++i) kept[first + i] = words[i] >= threshold ? 1 : 0;
                  std::int64_t at = first;
                  cpu::for_rows(plan, first, first + count, [&](const auto& p, const auto& strides, std::int64_t n) {
                    const auto* from = reinterpret_cast<const T*>(p[0]);
                    const std::int64_t step = strides[0] / static_cast<std::int64_t>(sizeof(T));
                    if (step == 1) {
                      apply(from, 1, kept + at, factor, to + at, n);
                    } else {
                      apply(from, step, kept + at, factor, to + at, n);
                    }
                    at += n;
                  });
                });
    });
  }

  void dropout_grad(const Tensor& grad, const Tensor& mask, double scale, const Tensor& out) override {
    dispatch_floating("dropout_grad", grad.dtype(), [&]<class T>(TypeTag<T>) {
      using C = ComputeType<T>;
      const C factor = static_cast<C>(scale);
      cpu::map<T, T, std::uint8_t>(
          out, [factor](C g, std::uint8_t keep) { return keep != 0 ? g * factor : C{0}; }, grad, mask);
    });
  }

 private:
  template <class T>
  static void apply(const T* from, std::int64_t step, const std::uint8_t* kept, ComputeType<T> factor, T* to,
                    std::int64_t n) {
    using C = ComputeType<T>;
    DDP_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < n; ++i) {
      const C scaled = cpu::load(from[i * step]) * factor;
      to[i] = cpu::store<T>(kept[i] != 0 ? scaled : C{0});
    }
  }
};

}  // namespace

RandomBackend& cpu_random() {
  static CpuRandom backend;
  return backend;
}

}  // namespace ddp::raw
