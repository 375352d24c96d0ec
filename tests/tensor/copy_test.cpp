#include "tensor/copy.h"

#include <gtest/gtest.h>

#include "reference.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

TEST(ToString, ShowsTheDigitsOfTheType) {
  EXPECT_EQ(Tensor().to_string(), "Tensor(undefined)");
  EXPECT_EQ(tensor({0.1F, -2.0F}).to_string(), "Tensor([2], float32, cpu:0, {0.1, -2})");
  EXPECT_EQ(tensor({0.1}).to_string(), "Tensor([1], float64, cpu:0, {0.1})");
  EXPECT_EQ(tensor({std::int64_t{9007199254740993}}).to_string(), "Tensor([1], int64, cpu:0, {9007199254740993})");
  EXPECT_EQ(full({2}, 1.5, {.dtype = DType::float16}).to_string(), "Tensor([2], float16, cpu:0, {1.5, 1.5})");
}

TEST(Copy, FillEveryDtypeAndLayout) {
  for (const DType dtype : kEvery) {
    for (const Layout layout : kLayouts) {
      const Tensor x = lay_out(random({3, 5}, dtype, 1), layout);
      raw::fill_(x, 1);
      EXPECT_EQ(x.to_vector<double>(), std::vector<double>(15, 1.0)) << name(dtype);
    }
  }
  const Tensor scalar = empty({});
  raw::fill_(scalar, 2.5);
  EXPECT_EQ(scalar.item<float>(), 2.5F);
  raw::fill_(empty({0, 3}), 1);
}

TEST(Copy, FillLeavesTheRestOfTheStorageAlone) {
  const Tensor base = zeros({6});
  raw::fill_(raw::slice(base, 0, 1, 6, 2), 7);
  EXPECT_EQ(base.to_vector<float>(), (std::vector<float>{0, 7, 0, 7, 0, 7}));
}

TEST(Copy, EveryPairOfDtypes) {
  const std::vector<double> values = {0, 1, 2, 3, 100, 127};
  for (const DType from : kEvery) {
    for (const DType to : kEvery) {
      for (const Layout layout : kLayouts) {
        poison();
        const Tensor x = lay_out(make(values, {2, 3}, from), layout);
        const Tensor y = lay_out(zeros({2, 3}, {to, Device::cpu()}), layout);
        raw::copy_(y, x);
        std::vector<double> expected = values;
        if (from == DType::boolean || to == DType::boolean) {
          for (double& value : expected) value = value != 0;
        }
        EXPECT_EQ(y.to_vector<double>(), expected) << name(from) << " to " << name(to);
        EXPECT_EQ(raw::to(x, to).to_vector<double>(), expected);
      }
    }
  }
}

TEST(Copy, ConversionAtTheEdges) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = make({-1.7, 1.7, 300, -infinity, infinity, std::nan("")}, {6}, DType::float64);
  EXPECT_EQ(raw::to(x, DType::uint8).to_vector<int>(), (std::vector<int>{0, 1, 255, 0, 255, 0}));
  EXPECT_EQ(raw::to(x, DType::int32).to_vector<int>(), (std::vector<int>{-1, 1, 300, INT32_MIN, INT32_MAX, 0}));
  EXPECT_EQ(raw::to(x, DType::int64).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{-1, 1, 300, INT64_MIN, INT64_MAX, 0}));
  // Ties to even: 2049 lies between the binary16 numbers 2048 and 2050, 257 between bfloat16's 256 and 258.
  EXPECT_EQ(raw::to(make({2049, 2051, 1e6}, {3}, DType::float64), DType::float16).to_vector<double>(),
            (std::vector<double>{2048, 2052, infinity}));
  EXPECT_EQ(raw::to(make({257, 259}, {2}, DType::float64), DType::bfloat16).to_vector<double>(),
            (std::vector<double>{256, 260}));
}

TEST(Copy, BroadcastsTheSource) {
  const Tensor y = empty({2, 3});
  raw::copy_(y, make({1, 2, 3}, {3}, DType::float32));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 2, 3, 1, 2, 3}));
  raw::copy_(y, make({4, 5}, {2, 1}, DType::float64));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{4, 4, 4, 5, 5, 5}));
}

TEST(Copy, LargeTranspositionsAreExact) {
  for (const DType dtype : {DType::float32, DType::uint8, DType::float64, DType::bfloat16}) {
    const Tensor x = random({3, 70, 101}, dtype, 5);
    const std::vector<double> values = x.to_vector<double>();
    poison();
    const Tensor y = raw::clone(raw::transpose(x, 1, 2));
    ASSERT_TRUE(y.is_contiguous());
    const std::vector<double> got = y.to_vector<double>();
    for (std::size_t n = 0; n < 3; ++n) {
      for (std::size_t i = 0; i < 70; ++i) {
        for (std::size_t j = 0; j < 101; ++j) {
          ASSERT_EQ(got[(n * 101 + j) * 70 + i], values[(n * 70 + i) * 101 + j]);
        }
      }
    }
    const Tensor back = raw::clone(raw::permute(raw::clone(raw::permute(x, {2, 0, 1})), {1, 2, 0}));
    EXPECT_TRUE(equal(back, x));
  }
}

TEST(Copy, OverlappingViewsOfOneStorage) {
  const Tensor base = arange(8, {DType::float32, Device::cpu()});
  raw::copy_(raw::slice(base, 0, 1, 8, 1), raw::slice(base, 0, 0, 7, 1));
  EXPECT_EQ(base.to_vector<float>(), (std::vector<float>{0, 0, 1, 2, 3, 4, 5, 6}));
  raw::copy_(raw::slice(base, 0, 0, 7, 1), raw::slice(base, 0, 1, 8, 1));
  EXPECT_EQ(base.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 6}));
  const Tensor square = make({1, 2, 3, 4}, {2, 2}, DType::float32);
  raw::copy_(square, raw::transpose(square, 0, 1));
  EXPECT_EQ(square.to_vector<float>(), (std::vector<float>{1, 3, 2, 4}));
  raw::copy_(square, square);
  EXPECT_EQ(square.to_vector<float>(), (std::vector<float>{1, 3, 2, 4}));
}

TEST(Copy, BetweenCpuDevices) {
  const Tensor x = random({4, 5}, DType::float32, 3);
  const Tensor y = raw::to(raw::transpose(x, 0, 1), Device::cpu(1));
  EXPECT_EQ(y.device(), Device::cpu(1));
  EXPECT_EQ(y.to_vector<float>(), raw::transpose(x, 0, 1).to_vector<float>());
  EXPECT_TRUE(raw::to(x, Device::cpu()).is_same(x));
}

TEST(Copy, RefusesWhatCannotBeWritten) {
  const Tensor wide = raw::expand(ones({1, 3}), {2, 3});
  EXPECT_EQ(
      error_of([&] { raw::fill_(wide, 0); }),
      "fill_: cannot write to a tensor whose elements share memory (sizes [2, 3], strides [0, 1]); clone it first");
  EXPECT_NE(error_of([&] { raw::copy_(wide, ones({2, 3})); }), "no error");
  EXPECT_EQ(error_of([&] { raw::copy_(ones({2}), ones({3})); }), "copy_: sizes [3] cannot be broadcast to [2]");
  EXPECT_EQ(error_of([&] { raw::fill_(zeros({2}, {DType::int32, Device::cpu()}), 0.5); }),
            "fill_: value 0.5 with dtype int32; allowed: whole numbers");
  EXPECT_EQ(error_of([&] { raw::copy_(Tensor(), ones({2})); }), "copy_: destination is an undefined tensor");
}

TEST(View, ReshapeKeepsMemoryWhereStridesAllow) {
  const Tensor x = arange(24);
  const Tensor y = raw::reshape(x, {2, -1, 4});
  EXPECT_EQ(y.sizes(), Dims({2, 3, 4}));
  EXPECT_TRUE(y.shares_storage_with(x));
  const Tensor t = raw::transpose(y, 0, 1);  // [3, 2, 4], strides [4, 12, 1]
  EXPECT_EQ(raw::view(t, {3, 1, 2, 2, 2}).strides()[0], 4);
  EXPECT_EQ(raw::view(t, {3, 2, 2, 2}).to_vector<int>(), t.to_vector<int>());
  EXPECT_EQ(error_of([&] { raw::view(t, {6, 4}); }),
            "view: sizes [3, 2, 4] with strides [4, 12, 1] cannot be seen as [6, 4] without a copy; use reshape");
  const Tensor copied = raw::reshape(t, {6, 4});
  EXPECT_FALSE(copied.shares_storage_with(x));
  EXPECT_EQ(copied.to_vector<int>(), t.to_vector<int>());
  // Dimensions of one element do not stand in the way, whatever their stride.
  const Tensor narrow = raw::slice(raw::reshape(x, {4, 6}), 1, 0, 1, 1);  // [4, 1], strides [6, 1]
  EXPECT_EQ(raw::view(narrow, {2, 1, 2}).to_vector<int>(), (std::vector<int>{0, 6, 12, 18}));
  EXPECT_EQ(raw::view(narrow, {1, 4, 1, 1}).to_vector<int>(), (std::vector<int>{0, 6, 12, 18}));
  EXPECT_EQ(raw::reshape(ones({}), {1, 1}).sizes(), Dims({1, 1}));
  EXPECT_EQ(raw::reshape(ones({1, 1}), Dims()).dim(), 0);
  EXPECT_EQ(raw::reshape(ones({0, 3}), {3, 0}).sizes(), Dims({3, 0}));
}

TEST(View, ReshapeErrors) {
  const Tensor x = arange(6);
  EXPECT_EQ(error_of([&] { raw::reshape(x, {4, 2}); }), "reshape: 6 elements (sizes [6]) do not fit sizes [4, 2]");
  EXPECT_EQ(error_of([&] { raw::reshape(x, {-1, 4}); }), "reshape: 6 elements (sizes [6]) do not fit sizes [-1, 4]");
  EXPECT_EQ(error_of([&] { raw::reshape(x, {-1, -1}); }), "reshape: sizes [-1, -1] have more than one -1");
  EXPECT_EQ(error_of([&] { raw::reshape(x, {-2, 3}); }), "reshape: sizes [-2, 3]; allowed: 0 or more, and one -1");
}

TEST(View, PermuteTransposeExpandSlice) {
  const Tensor x = raw::reshape(arange(6), {2, 3});
  EXPECT_EQ(raw::transpose(x, 0, -1).to_vector<int>(), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(raw::permute(x, {1, 0}).to_vector<int>(), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(error_of([&] { raw::permute(x, {0, 0}); }),
            "permute: order [0, 0] names dimension 0 twice; allowed: each dimension once");
  EXPECT_NE(error_of([&] { raw::permute(x, {0}); }), "no error");
  EXPECT_NE(error_of([&] { raw::transpose(x, 0, 2); }), "no error");
  EXPECT_EQ(raw::expand(raw::slice(x, 0, 1, 2, 1), {2, -1}).to_vector<int>(), (std::vector<int>{3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(error_of([&] { raw::expand(x, {2, 4}); }), "expand: sizes [2, 3] cannot be broadcast to [2, 4]");
  EXPECT_EQ(raw::slice(x, 1, 0, 3, 2).to_vector<int>(), (std::vector<int>{0, 2, 3, 5}));
  EXPECT_EQ(raw::slice(x, -1, -2, 100, 1).to_vector<int>(), (std::vector<int>{1, 2, 4, 5}));
  EXPECT_EQ(raw::slice(x, 0, 2, 1, 1).sizes(), Dims({0, 3}));
  EXPECT_EQ(raw::slice(x, 0, 0, 2, INT64_MAX).to_vector<int>(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(error_of([&] { raw::slice(x, 0, 0, 2, 0); }), "slice: step 0; allowed: 1 or more");
}

TEST(Copy, Cat) {
  for (const DType dtype : kEvery) {
    for (const Layout layout : kLayouts) {
      poison();
      const Tensor a = lay_out(random({2, 3}, dtype, 1), layout);
      const Tensor b = lay_out(random({2, 1}, dtype, 2), layout);
      const Tensor c = raw::cat({a, b, empty({2, 0}, a.options())}, -1);
      ASSERT_EQ(c.sizes(), Dims({2, 4}));
      EXPECT_EQ(raw::slice(c, 1, 0, 3, 1).to_vector<double>(), a.to_vector<double>());
      EXPECT_EQ(raw::slice(c, 1, 3, 4, 1).to_vector<double>(), b.to_vector<double>());
    }
  }
  EXPECT_EQ(error_of([&] { raw::cat({ones({2, 3}), ones({3, 3})}, 1); }),
            "cat: tensor 1 has sizes [3, 3], tensor 0 has [2, 3]; only dimension 1 may differ");
  EXPECT_EQ(error_of([&] { raw::cat({}, 0); }), "cat: no tensors were given; allowed: 1 or more");
}

TEST(Copy, IndexRows) {
  const Tensor x = raw::transpose(raw::reshape(arange(6), {3, 2}), 0, 1);  // rows 0 2 4, 1 3 5
  const Tensor index = ddp::tensor(std::vector<std::int64_t>{1, 0, 1}, {3});
  EXPECT_EQ(raw::index_rows(x, index).to_vector<int>(), (std::vector<int>{1, 3, 5, 0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(raw::index_rows(x, empty({0}, {DType::int64, Device::cpu()})).sizes(), Dims({0, 3}));
  EXPECT_EQ(error_of([&] { raw::index_rows(x, ddp::tensor(std::vector<std::int64_t>{0, 2}, {2})); }),
            "index_rows: index 2 at position 1; allowed: 0 to 1");
  EXPECT_NE(error_of([&] { raw::index_rows(x, ones({2})); }), "no error");
}

TEST(Pinned, IsOrdinaryMemoryWithoutAGpu) {
  if (device_count(DeviceType::cuda) > 0) GTEST_SKIP() << "this machine has a GPU";
  Tensor x = empty({3}, {.dtype = DType::int32, .pinned = true});
  x.fill_(4);
  EXPECT_FALSE(x.is_pinned());
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{4, 4, 4}));
  x.used_on(current_stream(Device::cpu(1)));  // work on CPUs is done when its call returns
  float memory[2] = {1, 2};
  const Tensor blob = from_blob(memory, {2}, {.pinned = true});
  EXPECT_FALSE(blob.is_pinned());
  EXPECT_EQ(blob.to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(Pinned, IsForTheCpu) {
  EXPECT_EQ(error_of([] { empty({1}, {.device = Device::cuda(), .pinned = true}); }),
            "a pinned tensor is in CPU memory, and not on cuda:0");
}

}  // namespace
}  // namespace ddp
