// Random numbers and dropout on the GPU: the CPU's bits; normal numbers the CPU's but for the last rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ddp/autograd/functions.h"
#include "ddp/tensor/random.h"
#include "support/cuda_compare.h"
#include "tensor/loss.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;
using cuda_compare_detail::same_bytes;

constexpr Device kGpu = Device::cuda(0);
const std::vector<DType> kFloating = {DType::float64, DType::float32, DType::bfloat16, DType::float16};
const std::vector<DType> kEvery = {DType::float64, DType::float32, DType::bfloat16, DType::float16,
                                   DType::int32,   DType::int64,   DType::uint8,    DType::boolean};
constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 127, 1024, 4099, 3'000'001};

/// Seeds and first blocks: ordinary, and where the counter carries or wraps around.
const std::pair<std::uint64_t, std::uint64_t> kStates[] = {
    {0, 0}, {0x123456789abcdef0U, 7}, {42, 0xfffffffeU}, {~std::uint64_t{0}, ~std::uint64_t{0} - 3}};

Generator generator(const std::pair<std::uint64_t, std::uint64_t>& state) {
  Generator result;
  result.set_state(state.first, state.second);
  return result;
}

/// Row-major, `offset` elements behind an aligned address.
Tensor fresh(std::int64_t count, DType dtype, Device device, std::int64_t offset) {
  return make_view(empty({count + offset}, {dtype, device}), {count}, {1}, offset);
}

/// Calls `draw(x, generator)` on both devices; hands the results and both generators' offsets on.
template <class Draw, class Check>
void on_both(DType dtype, const Draw& draw, const Check& check) {
  for (const auto& state : kStates) {
    for (const std::int64_t count : kSizes) {
      if (count > 10'000 && state.first != 0) continue;
      for (const std::int64_t offset : {0, 1}) {
        Generator on_cpu = generator(state);
        Generator on_gpu = generator(state);
        const Tensor cpu = fresh(count, dtype, Device::cpu(), offset);
        const Tensor gpu = fresh(count, dtype, kGpu, offset);
        draw(cpu, on_cpu);
        draw(gpu, on_gpu);
        EXPECT_EQ(on_cpu.offset(), on_gpu.offset());
        check(cpu, gpu, concat(dtype, ", ", count, " elements, seed ", state.first, ", offset ", offset));
      }
    }
  }
}

/// The first element that differs.
std::string first_difference(const Tensor& cpu, const Tensor& gpu) {
  const auto a = cpu.to_vector<double>();
  const auto b = gpu.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return concat("element ", i, " is ", b[i], ", on the CPU ", a[i], " (apart ", b[i] - a[i], ")");
  }
  return "no number, but bits";
}

void expect_same_bits(const Tensor& cpu, const Tensor& gpu, const std::string& what) {
  EXPECT_TRUE(same_bytes(cpu, gpu)) << what << ": " << first_difference(cpu, gpu);
}

TEST(CudaRandom, UniformIsTheCpusBitForBit) {
  for (const DType dtype : kFloating) {
    for (const auto& [low, high] : {std::pair{0.0, 1.0}, std::pair{-0.3, 0.7}, std::pair{5.0, 5.0}}) {
      on_both(dtype, [low, high](const Tensor& x, Generator& g) { raw::uniform_(x, low, high, g); }, expect_same_bits);
    }
  }
}

TEST(CudaRandom, WholeNumbersAreTheCpusBitForBit) {
  for (const DType dtype : kEvery) {
    const std::int64_t low = dtype == DType::uint8 || dtype == DType::boolean ? 0 : -100;
    const std::int64_t high = dtype == DType::boolean ? 2 : 101;
    on_both(dtype, [low, high](const Tensor& x, Generator& g) { raw::randint_(x, low, high, g); }, expect_same_bits);
  }
  on_both(
      DType::int64, [](const Tensor& x, Generator& g) { raw::randint_(x, INT64_MIN, INT64_MAX, g); }, expect_same_bits);
}

TEST(CudaRandom, NormalIsTheCpusButForTheLastRounding) {
  for (const DType dtype : kFloating) {
    // Both compute in double, where logarithm and sine are right to 2 units in the last place (2^-52 of a number) on
    // either side, and |a number| <= deviation * sqrt(2 * 32 ln 2) = 6.7 deviations: at most 8 * 2^-52 * 6.7 * 2 apart,
    // 3e-14 with room. A narrower type then rounds that to the same number or to a neighbour.
    constexpr double kDouble = 3e-14;
    const double step = dtype == DType::float64   ? 0
                        : dtype == DType::float32 ? 0x1p-23
                        : dtype == DType::float16 ? 0x1p-10
                                                  : 0x1p-7;
    on_both(
        dtype, [](const Tensor& x, Generator& g) { raw::normal_(x, 0.5, 2, g); },
        [&](const Tensor& cpu, const Tensor& gpu, const std::string& what) {
          const auto a = cpu.to_vector<double>();
          const auto b = gpu.to_vector<double>();
          std::size_t apart = 0;
          for (std::size_t i = 0; i < a.size(); ++i) {
            ASSERT_LE(std::fabs(a[i] - b[i]), kDouble + step * std::fabs(a[i]))
                << what << ": element " << i << " is " << b[i] << ", on the CPU " << a[i];
            apart += a[i] != b[i] ? 1 : 0;
          }
          // Ties are as rare as a number within 3e-14 of the middle between two neighbours.
          if (dtype != DType::float64) {
            EXPECT_LE(apart, 1 + a.size() / 100'000) << what;
          }
        });
  }
}

TEST(CudaRandom, NormalHasItsMomentsAndTails) {
  Generator g(11);
  const Tensor x = empty({1'000'000}, {DType::float32, kGpu});
  raw::normal_(x, 0, 1, g);
  double sum = 0;
  double squares = 0;
  double largest = 0;
  for (const double value : x.to_vector<double>()) {
    sum += value;
    squares += value * value;
    largest = std::max(largest, std::fabs(value));
  }
  EXPECT_NEAR(sum / 1e6, 0, 0.005);      // 5 standard errors of 1e-3
  EXPECT_NEAR(squares / 1e6, 1, 0.007);  // 5 standard errors of 1.4e-3
  EXPECT_GT(largest, 4);
  EXPECT_LT(largest, 6.7);
}

TEST(CudaRandom, DefaultGeneratorsGiveTheSameNumbersAndMoveOn) {
  manual_seed(123);
  const Tensor a = rand({100}, {DType::float32, Device::cpu()});
  const Tensor b = rand({33}, {DType::float64, Device::cpu()});
  const Tensor c = randint(0, 1000, {7}, {DType::int64, Device::cpu()});
  EXPECT_TRUE(equal(a, rand({100}, {DType::float32, kGpu})));
  EXPECT_TRUE(equal(b, rand({33}, {DType::float64, kGpu})));
  EXPECT_TRUE(equal(c, randint(0, 1000, {7}, {DType::int64, kGpu})));
  EXPECT_FALSE(equal(a, rand({100}, {DType::float32, kGpu})));
  EXPECT_EQ(rand({0}, {DType::float32, kGpu}).numel(), 0);
}

/// The same numbers in another place: strided, and repeated along dimension 0.
std::vector<Tensor> laid_out(const Tensor& x) {
  Tensor turned = empty({x.sizes()[1], x.sizes()[0]}, x.options());
  turned = raw::transpose(turned, 0, 1);
  turned.copy_(x);
  Tensor sliced = raw::slice(zeros({x.sizes()[0], 2 * x.sizes()[1] + 1}, x.options()), 1, 1, 2 * x.sizes()[1] + 1, 2);
  sliced.copy_(x);
  Tensor behind = make_view(empty({x.numel() + 1}, x.options()), x.sizes(), contiguous_strides(x.sizes()), 1);
  behind.copy_(x);
  return {x, turned, sliced, behind, raw::expand(raw::slice(x, 0, 0, 1, 1), x.sizes())};
}

TEST(CudaDropout, IsTheCpusBitForBit) {
  for (const DType dtype : kFloating) {
    for (const Dims& sizes : {Dims{1, 1}, Dims{5, 33}, Dims{64, 128}, Dims{3, 7001}}) {
      const Tensor host = raw::to(tensor(random_values(sizes.product(), -2, 2, 9), sizes), dtype);
      const auto on_gpu = laid_out(raw::to(host, kGpu));
      const auto on_cpu = laid_out(host);
      for (const double p : {0.0, 0.1, 0.5, 0.999, 1.0}) {
        for (std::size_t i = 0; i < on_gpu.size(); ++i) {
          const std::string what = concat(dtype, " ", sizes, ", p ", p, ", layout ", i);
          Generator a(5);
          Generator b(5);
          const auto cpu = raw::dropout(on_cpu[i], p, a);
          const auto gpu = raw::dropout(on_gpu[i], p, b);
          EXPECT_EQ(a.offset(), b.offset());
          expect_same_bits(cpu.mask, gpu.mask, what + " mask");
          expect_same_bits(cpu.y, gpu.y, what + " y");
          for (std::size_t m = 0; m < on_gpu.size(); ++m) {  // the mask in every layout as well
            const Tensor cpu_mask = laid_out(cpu.mask)[m];
            const Tensor gpu_mask = laid_out(gpu.mask)[m];
            expect_same_bits(raw::dropout_grad(on_cpu[i], cpu_mask, p), raw::dropout_grad(on_gpu[i], gpu_mask, p),
                             what + " gradient, mask layout " + std::to_string(m));
          }
        }
      }
    }
  }
}

TEST(CudaDropout, ADroppedNanIsZero) {
  const Tensor x = full({1000}, std::nan(""), {DType::float32, kGpu});
  Generator g(1);
  const auto dropped = raw::dropout(x, 0.5, g);
  const auto y = dropped.y.to_vector<float>();
  const auto mask = dropped.mask.to_vector<int>();
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_TRUE(mask[i] != 0 ? std::isnan(y[i]) : y[i] == 0) << i;
}

TEST(CudaDropout, Nothing) {
  Generator g(1);
  const Tensor none = zeros({0, 3}, {DType::float32, kGpu});
  const auto dropped = raw::dropout(none, 0.5, g);
  EXPECT_EQ(dropped.y.sizes(), (Dims{0, 3}));
  EXPECT_EQ(raw::dropout_grad(none, dropped.mask, 0.5).sizes(), (Dims{0, 3}));
  EXPECT_EQ(g.offset(), 0U);
}

TEST(CudaDropout, ThroughAutograd) {
  compare_cuda_grad("dropout", {{{17, 33}}}, [](const Inputs& in) {
    Generator g(77);
    return dropout(in[0], 0.3, true, &g);
  });
}

}  // namespace
}  // namespace ddp
