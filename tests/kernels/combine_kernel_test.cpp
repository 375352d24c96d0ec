// The kernels that add up what several ranks have.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ddp/core/dtype.h"
#include "ddp_kernels/combine.h"

namespace ddp::test {
namespace {

using kernels::Combine;
using kernels::Type;

/// Device memory with numbers, 4 bytes behind an aligned address when asked for.
template <class T>
class Numbers {
 public:
  explicit Numbers(const std::vector<T>& values, std::size_t offset = 0) : count_(values.size()), offset_(offset) {
    EXPECT_EQ(cudaMalloc(&memory_, (count_ + offset + 1) * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data(), values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~Numbers() { cudaFree(memory_); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  T* data() const { return static_cast<T*>(memory_) + offset_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  void* memory_ = nullptr;
  std::size_t count_;
  std::size_t offset_;
};

template <class T>
void combine(const std::vector<const Numbers<T>*>& sources, const std::vector<const Numbers<T>*>& outputs, Type type,
             Combine op, std::size_t count, int divisor = 1) {
  kernels::CombineTable table;
  table.sources = static_cast<int>(sources.size());
  table.outputs = static_cast<int>(outputs.size());
  for (std::size_t i = 0; i < sources.size(); ++i) table.source[i] = sources[i]->data();
  for (std::size_t i = 0; i < outputs.size(); ++i) table.output[i] = outputs[i]->data();
  ASSERT_EQ(kernels::combine(table, type, op, static_cast<std::int64_t>(count), divisor, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

template <class T>
std::vector<T> values(std::size_t count, int seed) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = static_cast<T>((static_cast<int>(i) * 7 + seed * 13) % 101 - 40) / static_cast<T>(7);
  }
  return result;
}

// In the order of the sources, each sum rounded: the same operations on the host give the same bits.
template <class T>
void sums_in_order(Type type) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{255}, std::size_t{100'003}}) {
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
      const auto a = values<T>(count, 1);
      const auto b = values<T>(count, 2);
      const auto c = values<T>(count, 3);
      const Numbers<T> x(a, offset);
      const Numbers<T> y(b);
      const Numbers<T> z(c, offset);
      combine<T>({&x, &y, &z}, {&x, &y, &z}, type, Combine::sum, count, 3);  // all in place, divided
      for (const auto* output : {&x, &y, &z}) {
        const auto got = output->read();
        for (std::size_t i = 0; i < count; ++i) {
          const T sum = a[i] + b[i] + c[i];
          ASSERT_EQ(got[i], sum / T{3}) << i << " of " << count;
        }
      }
    }
  }
}

TEST(CombineKernel, SumsInOrderAndDivides) {
  sums_in_order<float>(Type::float32);
  sums_in_order<double>(Type::float64);
}

TEST(CombineKernel, SixteenBitFloatsAreRoundedOnce) {
  // In half precision 2048 + 1 is 2048, twice; in float the sum is 2050, which half precision has.
  const Numbers<Half> a({Half(2048.0F)});
  const Numbers<Half> b({Half(1.0F)});
  const Numbers<Half> c({Half(1.0F)});
  combine<Half>({&a, &b, &c}, {&b}, Type::float16, Combine::sum, 1);
  EXPECT_EQ(static_cast<float>(b.read()[0]), 2050.0F);
  const Numbers<BFloat16> d({BFloat16(256.0F)});
  const Numbers<BFloat16> e({BFloat16(1.0F)});
  combine<BFloat16>({&d, &e, &e}, {&d}, Type::bfloat16, Combine::sum, 1);
  EXPECT_EQ(static_cast<float>(d.read()[0]), 258.0F);
}

TEST(CombineKernel, MoreThanOneLaunchTakesIsCarriedUnrounded) {
  // In bfloat16 257 is 256, in the carry it is not.
  const Numbers<BFloat16> a({BFloat16(256.0F), BFloat16(3.0F)});
  const Numbers<BFloat16> b({BFloat16(1.0F), BFloat16(2.0F)});
  const Numbers<float> carry({0.0F, 0.0F});
  kernels::CombineTable table;
  table.sources = 2;
  table.source[0] = a.data();
  table.source[1] = b.data();
  table.carry = carry.data();
  ASSERT_EQ(kernels::combine(table, Type::bfloat16, Combine::sum, 2, 1, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(carry.read(), (std::vector<float>{257, 5}));
  table.carried = carry.data();
  table.source[0] = b.data();
  ASSERT_EQ(kernels::combine(table, Type::bfloat16, Combine::sum, 2, 1, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(carry.read(), (std::vector<float>{259, 9}));
  table.sources = table.outputs = 1;
  table.carry = nullptr;
  table.output[0] = a.data();
  ASSERT_EQ(kernels::combine(table, Type::bfloat16, Combine::sum, 2, 2, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(static_cast<float>(a.read()[0]), 130.0F);
  EXPECT_EQ(static_cast<float>(a.read()[1]), 5.5F);
  table.outputs = 0;
  EXPECT_EQ(kernels::combine(table, Type::bfloat16, Combine::sum, 2, 1, nullptr), cudaErrorInvalidValue);
}

TEST(CombineKernel, WholeNumbersWrapAndBoolsAreLogical) {
  const Numbers<std::int64_t> most({std::numeric_limits<std::int64_t>::max(), 3});
  combine<std::int64_t>({&most, &most}, {&most}, Type::int64, Combine::sum, 2);
  EXPECT_EQ(most.read(), (std::vector<std::int64_t>{-2, 6}));
  const Numbers<std::uint8_t> bytes({200, 16});
  combine<std::uint8_t>({&bytes, &bytes}, {&bytes}, Type::uint8, Combine::product, 2);
  EXPECT_EQ(bytes.read(), (std::vector<std::uint8_t>{200 * 200 % 256, 0}));
  const Numbers<std::int32_t> low({-5, 7});
  const Numbers<std::int32_t> high({4, 6});
  const Numbers<std::int32_t> result({0, 0});
  combine<std::int32_t>({&low, &high}, {&result}, Type::int32, Combine::min, 2);
  EXPECT_EQ(result.read(), (std::vector<std::int32_t>{-5, 6}));
  combine<std::int32_t>({&low, &high}, {&result}, Type::int32, Combine::max, 2);
  EXPECT_EQ(result.read(), (std::vector<std::int32_t>{4, 7}));

  const Numbers<std::uint8_t> p({0, 0, 1, 1});
  const Numbers<std::uint8_t> q({0, 1, 0, 1});
  const Numbers<std::uint8_t> r({9, 9, 9, 9});
  for (const Combine op : {Combine::sum, Combine::max, Combine::min, Combine::product}) {
    combine<std::uint8_t>({&p, &q}, {&r}, Type::boolean, op, 4);
    const bool any = op == Combine::sum || op == Combine::max;
    EXPECT_EQ(r.read(), any ? (std::vector<std::uint8_t>{0, 1, 1, 1}) : (std::vector<std::uint8_t>{0, 0, 0, 1}));
  }
}

TEST(CombineKernel, ANaNWinsOnEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Numbers<float> a({nan, 1, 2});
  const Numbers<float> b({1, nan, 3});
  const Numbers<float> out({0, 0, 0});
  for (const Combine op : {Combine::min, Combine::max, Combine::sum, Combine::product}) {
    combine<float>({&a, &b}, {&out}, Type::float32, op, 3);
    const auto got = out.read();
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_TRUE(std::isnan(got[1]));
    EXPECT_FALSE(std::isnan(got[2]));
  }
}

TEST(CombineKernel, DividesTruly) {
  std::vector<float> numbers(4097);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) * 0.37F;
  const Numbers<float> x(numbers, 1);
  ASSERT_EQ(kernels::divide(x.data(), Type::float32, 4097, 7, nullptr), cudaSuccess);
  const auto got = x.read();
  for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(got[i], numbers[i] / 7.0F) << i;
}

TEST(CombineKernel, WrongTablesAreRefused) {
  kernels::CombineTable table;
  EXPECT_EQ(kernels::combine(table, Type::float32, Combine::sum, 1, 1, nullptr), cudaErrorInvalidValue);
  table.sources = table.outputs = 1;
  EXPECT_EQ(kernels::combine(table, Type::float32, Combine::sum, 0, 1, nullptr), cudaSuccess);
  EXPECT_EQ(kernels::combine(table, Type::int32, Combine::sum, 1, 2, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(kernels::divide(nullptr, Type::int64, 1, 2, nullptr), cudaErrorInvalidValue);
  table.sources = kernels::kMaxCombined + 1;
  EXPECT_EQ(kernels::combine(table, Type::float32, Combine::sum, 1, 1, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace ddp::test
