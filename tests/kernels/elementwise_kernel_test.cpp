// fill, copy and add against the host: every type, strided and broadcast, exact.
#include "ddp_kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ddp/core/dtype.h"

namespace {

namespace k = ddp::kernels;
using ddp::BFloat16;
using ddp::DType;
using ddp::Half;

constexpr DType kTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                            DType::int32,   DType::int64,   DType::uint8,   DType::boolean};

k::Type type_of(DType dtype) { return static_cast<k::Type>(dtype); }

k::Sizes sizes(std::initializer_list<std::int64_t> values) {
  k::Sizes result;
  for (const std::int64_t value : values) result.sizes[result.rank++] = value;
  return result;
}
k::Strided strides(std::initializer_list<std::int64_t> values) {
  k::Strided result;
  int at = 0;
  for (const std::int64_t value : values) result.strides[at++] = value;
  return result;
}

/// Device memory of `elements` elements with bytes of 0xA5 as poison.
class Memory {
 public:
  Memory(DType dtype, std::size_t elements) : bytes_(elements * ddp::size_of(dtype)), dtype_(dtype) {
    EXPECT_EQ(cudaMalloc(&data_, bytes_), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0xA5, bytes_), cudaSuccess);
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  void* at(std::size_t element) const { return static_cast<char*>(data_) + element * ddp::size_of(dtype_); }

  template <class T>
  void write(const std::vector<T>& values) {
    ASSERT_LE(values.size() * sizeof(T), bytes_);
    ASSERT_EQ(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyDefault), cudaSuccess);
  }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    EXPECT_EQ(cudaMemcpy(values.data(), data_, bytes_, cudaMemcpyDefault), cudaSuccess);
    return values;
  }
  /// The elements as double. Exact for the small numbers of these tests.
  std::vector<double> numbers() const {
    std::vector<double> result;
    const auto bytes = read<std::uint8_t>();
    for (std::size_t i = 0; i < bytes.size(); i += ddp::size_of(dtype_)) result.push_back(number(&bytes[i]));
    return result;
  }
  void write_numbers(const std::vector<double>& values) {
    std::vector<std::uint8_t> bytes(values.size() * ddp::size_of(dtype_));
    for (std::size_t i = 0; i < values.size(); ++i) store(values[i], &bytes[i * ddp::size_of(dtype_)]);
    write(bytes);
  }

 private:
  template <class T>
  static T load(const std::uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  double number(const std::uint8_t* from) const {
    switch (dtype_) {
      case DType::float32:
        return load<float>(from);
      case DType::float64:
        return load<double>(from);
      case DType::float16:
        return static_cast<double>(static_cast<float>(load<Half>(from)));
      case DType::bfloat16:
        return static_cast<double>(static_cast<float>(load<BFloat16>(from)));
      case DType::int32:
        return load<std::int32_t>(from);
      case DType::int64:
        return static_cast<double>(load<std::int64_t>(from));
      default:
        return *from;
    }
  }
  template <class T>
  static void put(T value, std::uint8_t* to) {
    std::memcpy(to, &value, sizeof value);
  }
  void store(double value, std::uint8_t* to) const {
    switch (dtype_) {
      case DType::float32:
        return put(static_cast<float>(value), to);
      case DType::float64:
        return put(value, to);
      case DType::float16:
        return put(Half(static_cast<float>(value)), to);
      case DType::bfloat16:
        return put(BFloat16(static_cast<float>(value)), to);
      case DType::int32:
        return put(static_cast<std::int32_t>(value), to);
      case DType::int64:
        return put(static_cast<std::int64_t>(value), to);
      case DType::uint8:
        return put(static_cast<std::uint8_t>(value), to);
      case DType::boolean:
        return put(static_cast<std::uint8_t>(value != 0 ? 1 : 0), to);
    }
  }

  std::size_t bytes_;
  DType dtype_;
  void* data_ = nullptr;
};

TEST(Kernels, TypesAreNumberedAsDTypes) {
  EXPECT_EQ(type_of(DType::float32), k::Type::float32);
  EXPECT_EQ(type_of(DType::float64), k::Type::float64);
  EXPECT_EQ(type_of(DType::float16), k::Type::float16);
  EXPECT_EQ(type_of(DType::bfloat16), k::Type::bfloat16);
  EXPECT_EQ(type_of(DType::int32), k::Type::int32);
  EXPECT_EQ(type_of(DType::int64), k::Type::int64);
  EXPECT_EQ(type_of(DType::uint8), k::Type::uint8);
  EXPECT_EQ(type_of(DType::boolean), k::Type::boolean);
}

TEST(Fill, EveryTypeContiguous) {
  for (const DType dtype : kTypes) {
    Memory x(dtype, 1000);
    ASSERT_EQ(k::fill(x.data(), type_of(dtype), sizes({10, 100}), strides({100, 1}), 3, nullptr), cudaSuccess);
    EXPECT_EQ(x.numbers(), std::vector<double>(1000, dtype == DType::boolean ? 1 : 3)) << name(dtype);
  }
}

TEST(Fill, StridedLeavesTheRest) {
  Memory x(DType::float32, 12);
  ASSERT_EQ(k::fill(x.data(), k::Type::float32, sizes({12}), strides({1}), -1, nullptr), cudaSuccess);
  // The middle two columns of a 3 x 4 matrix.
  ASSERT_EQ(k::fill(x.at(1), k::Type::float32, sizes({3, 2}), strides({4, 1}), 5, nullptr), cudaSuccess);
  EXPECT_EQ(x.numbers(), (std::vector<double>{-1, 5, 5, -1, -1, 5, 5, -1, -1, 5, 5, -1}));
}

TEST(Fill, NoElementsAndBadSizes) {
  EXPECT_EQ(k::fill(nullptr, k::Type::float32, sizes({3, 0}), strides({0, 1}), 1, nullptr), cudaSuccess);
  EXPECT_EQ(k::fill(nullptr, k::Type::float32, sizes({-1}), strides({1}), 1, nullptr), cudaErrorInvalidValue);
}

TEST(Fill, NoDimensionsIsOneElement) {
  Memory x(DType::int64, 2);
  x.write_numbers({7, 7});
  ASSERT_EQ(k::fill(x.data(), k::Type::int64, sizes({}), strides({}), 1, nullptr), cudaSuccess);
  EXPECT_EQ(x.numbers(), (std::vector<double>{1, 7}));
}

TEST(Copy, EveryPairOfTypes) {
  const std::vector<double> values{0, 1, 2, 3, 100, 127};  // exact in every type but bool
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      Memory source(from, values.size());
      source.write_numbers(values);
      Memory destination(to, values.size());
      ASSERT_EQ(k::copy(destination.data(), type_of(to), strides({1}), source.data(), type_of(from), strides({1}),
                        sizes({6}), nullptr),
                cudaSuccess);
      const bool truth = from == DType::boolean || to == DType::boolean;
      EXPECT_EQ(destination.numbers(), truth ? std::vector<double>({0, 1, 1, 1, 1, 1}) : values)
          << name(from) << " to " << name(to);
    }
  }
}

TEST(Copy, RoundsToNearestEvenAsTheHostDoes) {
  const std::vector<float> values{1.0F + 0x1p-11F, 1.0F + 0x3p-11F, 1.0F + 0x1p-8F, 1.0F + 0x3p-8F, 65519.0F,
                                  65520.0F,        0x1p-25F,        0x3p-26F,       -2.7182818F};
  Memory source(DType::float32, values.size());
  source.write(values);
  Memory half(DType::float16, values.size());
  Memory brain(DType::bfloat16, values.size());
  const auto shape = sizes({static_cast<std::int64_t>(values.size())});
  ASSERT_EQ(k::copy(half.data(), k::Type::float16, strides({1}), source.data(), k::Type::float32, strides({1}), shape,
                    nullptr),
            cudaSuccess);
  ASSERT_EQ(k::copy(brain.data(), k::Type::bfloat16, strides({1}), source.data(), k::Type::float32, strides({1}), shape,
                    nullptr),
            cudaSuccess);
  const auto halves = half.read<std::uint16_t>();
  const auto brains = brain.read<std::uint16_t>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(halves[i], Half(values[i]).bits) << values[i];
    EXPECT_EQ(brains[i], BFloat16(values[i]).bits) << values[i];
  }
}

TEST(Copy, TransposesAndBroadcasts) {
  Memory source(DType::int32, 6);
  source.write_numbers({1, 2, 3, 4, 5, 6});
  Memory transposed(DType::float32, 6);  // 3 x 2 from 2 x 3
  ASSERT_EQ(k::copy(transposed.data(), k::Type::float32, strides({2, 1}), source.data(), k::Type::int32,
                    strides({1, 3}), sizes({3, 2}), nullptr),
            cudaSuccess);
  EXPECT_EQ(transposed.numbers(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  Memory repeated(DType::int32, 6);  // its first row, twice
  ASSERT_EQ(k::copy(repeated.data(), k::Type::int32, strides({3, 1}), source.data(), k::Type::int32, strides({0, 1}),
                    sizes({2, 3}), nullptr),
            cudaSuccess);
  EXPECT_EQ(repeated.numbers(), (std::vector<double>{1, 2, 3, 1, 2, 3}));
}

TEST(Copy, EightDimensions) {
  std::vector<double> values(256);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  Memory source(DType::int64, 256);
  source.write_numbers(values);
  Memory reversed(DType::int64, 256);
  // All eight dimensions of size 2 in reverse order: the bits of the index are mirrored.
  ASSERT_EQ(k::copy(reversed.data(), k::Type::int64, strides({128, 64, 32, 16, 8, 4, 2, 1}), source.data(),
                    k::Type::int64, strides({1, 2, 4, 8, 16, 32, 64, 128}), sizes({2, 2, 2, 2, 2, 2, 2, 2}), nullptr),
            cudaSuccess);
  const auto result = reversed.numbers();
  for (unsigned i = 0; i < 256; ++i) {
    unsigned mirrored = 0;
    for (unsigned bit = 0; bit < 8; ++bit) mirrored |= ((i >> bit) & 1U) << (7 - bit);
    ASSERT_EQ(result[i], mirrored) << i;
  }
}

TEST(Copy, MoreElementsThanOneGridHoldsThreads) {
  constexpr std::int64_t kCount = 3'000'001;
  Memory source(DType::int32, kCount);
  std::vector<std::int32_t> values(kCount);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  source.write(values);
  Memory destination(DType::int64, kCount);
  ASSERT_EQ(k::copy(destination.data(), k::Type::int64, strides({1}), source.data(), k::Type::int32, strides({1}),
                    sizes({kCount}), nullptr),
            cudaSuccess);
  const auto result = destination.read<std::int64_t>();
  for (std::size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], static_cast<std::int64_t>(i));
}

TEST(Add, EveryTypeWithAlpha) {
  for (const DType dtype : kTypes) {
    Memory a(dtype, 4);
    Memory b(dtype, 4);
    Memory out(dtype, 4);
    a.write_numbers({1, 2, 3, 40});
    b.write_numbers({5, 6, 7, 8});
    const cudaError_t error = k::add(out.data(), strides({1}), a.data(), strides({1}), b.data(), strides({1}),
                                     sizes({4}), 2, type_of(dtype), nullptr);
    if (dtype == DType::boolean) {
      EXPECT_EQ(error, cudaErrorInvalidValue);
      continue;
    }
    ASSERT_EQ(error, cudaSuccess);
    EXPECT_EQ(out.numbers(), (std::vector<double>{11, 14, 17, 56})) << name(dtype);
  }
}

TEST(Add, InPlaceWithARowForAllRows) {
  Memory y(DType::float32, 6);
  Memory row(DType::float32, 3);
  y.write_numbers({1, 2, 3, 4, 5, 6});
  row.write_numbers({10, 20, 30});
  ASSERT_EQ(k::add(y.data(), strides({3, 1}), y.data(), strides({3, 1}), row.data(), strides({0, 1}), sizes({2, 3}), 1,
                   k::Type::float32, nullptr),
            cudaSuccess);
  EXPECT_EQ(y.numbers(), (std::vector<double>{11, 22, 33, 14, 25, 36}));
}

TEST(Add, HalfIsAddedInFloatAndRoundedOnce) {
  Memory a(DType::float16, 1);
  Memory b(DType::float16, 1);
  a.write_numbers({2048});
  b.write_numbers({1});
  Memory out(DType::float16, 1);
  // 2048 + 3*1 = 2051 lies between 2050 and 2052 in float16: a tie, to even.
  ASSERT_EQ(k::add(out.data(), strides({1}), a.data(), strides({1}), b.data(), strides({1}), sizes({1}), 3,
                   k::Type::float16, nullptr),
            cudaSuccess);
  EXPECT_EQ(out.numbers(), std::vector<double>{2052});
}

}  // namespace
