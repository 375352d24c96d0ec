#include "tensor/elementwise.h"

#include <gtest/gtest.h>

#include "reference.h"
#include "tensor/backend/elementwise_backend.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double normal_pdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0)); }

struct UnaryCase {
  raw::Unary op;
  double (*function)(double);
  double low;
  double high;
};
const std::vector<UnaryCase> kUnary = {{raw::Unary::neg, [](double x) { return -x; }, -4, 4},
                                       {raw::Unary::relu, [](double x) { return x > 0 ? x : 0; }, -4, 4},
                                       {raw::Unary::gelu, [](double x) { return x * normal_cdf(x); }, -6, 6},
                                       {raw::Unary::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -10, 10},
                                       {raw::Unary::tanh, [](double x) { return std::tanh(x); }, -5, 5},
                                       {raw::Unary::exp, [](double x) { return std::exp(x); }, -9, 9},
                                       {raw::Unary::log, [](double x) { return std::log(x); }, 0.01, 30},
                                       {raw::Unary::sqrt, [](double x) { return std::sqrt(x); }, 0, 30},
                                       {raw::Unary::reciprocal, [](double x) { return 1 / x; }, 0.1, 9},
                                       {raw::Unary::abs, [](double x) { return std::fabs(x); }, -4, 4},
                                       {raw::Unary::square, [](double x) { return x * x; }, -4, 4}};

// Rounding of the result, and of the computation (a few units of the compute type; log near 1 and gelu's
// products get an absolute share).
double tolerance(DType dtype) {
  const double compute = dtype == DType::float64 ? 0x1p-53 : 0x1p-24;
  return epsilon(dtype) * 1.01 + 8 * compute;
}

TEST(Unary, EveryOperationDtypeAndLayout) {
  for (const UnaryCase& c : kUnary) {
    for (const DType dtype : kFloating) {
      for (const Dims& sizes : {Dims{}, Dims{5}, Dims{3, 67}, Dims{2, 5, 7}, Dims{0, 3}}) {
        for (const Layout layout : kLayouts) {
          const Tensor x = lay_out(random(sizes, dtype, 3, c.low, c.high), layout);
          std::vector<double> expected = x.to_vector<double>();
          for (double& value : expected) value = c.function(value);
          poison();
          const Tensor y = raw::unary(c.op, x);
          ASSERT_EQ(y.sizes(), sizes);
          ASSERT_TRUE(y.is_contiguous());
          ASSERT_EQ(difference(y, expected, tolerance(dtype), dtype == DType::float64 ? 1e-15 : 1e-7), "")
              << static_cast<int>(c.op);
        }
      }
    }
  }
}

TEST(Unary, AlongBroadcastDimensions) {
  const Tensor x = raw::expand(make({1, 4}, {2, 1}, DType::float32), {2, 3});
  EXPECT_EQ(raw::unary(raw::Unary::sqrt, x).to_vector<float>(), (std::vector<float>{1, 1, 1, 2, 2, 2}));
}

TEST(Unary, WholeNumbers) {
  for (const DType dtype : {DType::int32, DType::int64}) {
    const Tensor x = make({-3, 0, 7}, {3}, dtype);
    EXPECT_EQ(raw::unary(raw::Unary::neg, x).to_vector<int>(), (std::vector<int>{3, 0, -7}));
    EXPECT_EQ(raw::unary(raw::Unary::abs, x).to_vector<int>(), (std::vector<int>{3, 0, 7}));
    EXPECT_EQ(raw::unary(raw::Unary::square, x).to_vector<int>(), (std::vector<int>{9, 0, 49}));
  }
  const Tensor least = ddp::tensor(std::vector<std::int32_t>{INT32_MIN}, {1});
  EXPECT_EQ(raw::unary(raw::Unary::abs, least).item<int>(), INT32_MIN);  // wraps, without undefined behaviour
  EXPECT_EQ(raw::unary(raw::Unary::square, make({20}, {1}, DType::uint8)).item<int>(), 400 % 256);
  EXPECT_EQ(error_of([] { raw::unary(raw::Unary::exp, arange(3)); }),
            "exp: dtype int64; allowed: float32, float64, float16, bfloat16");
  EXPECT_EQ(error_of([] { raw::unary(raw::Unary::neg, ones({1}, {DType::boolean, Device::cpu()})); }),
            "neg: dtype bool; allowed: every other dtype");
  EXPECT_EQ(error_of([] { raw::unary(raw::Unary::neg, Tensor()); }), "neg: input is an undefined tensor");
}

// Forty copies, so that the vectorised part of a loop sees the values and not only its remainder.
std::vector<double> repeated(const std::vector<double>& values) {
  std::vector<double> many;
  for (int i = 0; i < 40; ++i) many.insert(many.end(), values.begin(), values.end());
  return many;
}

TEST(Unary, InfinityNanAndTheEdgesOfTheRange) {
  const auto check = [](raw::Unary op, const std::vector<double>& in, const std::vector<double>& out, double relative) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      const std::vector<double> many = repeated(in);
      const Tensor x = make(many, {static_cast<std::int64_t>(many.size())}, dtype);
      EXPECT_EQ(difference(raw::unary(op, x), repeated(out), relative), "") << static_cast<int>(op);
    }
  };
  check(raw::Unary::relu, {kNan, kInf, -kInf, -0.5}, {kNan, kInf, 0, 0}, 0);
  check(raw::Unary::exp, {kNan, kInf, -kInf, 0, 88.5, -87, -1000, 1000},
        {kNan, kInf, 0, 1, std::exp(88.5), std::exp(-87.0), 0, kInf}, 1e-6);
  check(raw::Unary::log, {kNan, kInf, -kInf, 0, -1, 1}, {kNan, kInf, kNan, -kInf, kNan, 0}, 0);
  check(raw::Unary::tanh, {kNan, kInf, -kInf, 0, 50, -50, 1e-6}, {kNan, 1, -1, 0, 1, -1, 1e-6}, 1e-6);
  check(raw::Unary::sigmoid, {kNan, kInf, -kInf, 0, 200}, {kNan, 1, 0, 0.5, 1}, 0);
  check(raw::Unary::gelu, {kNan, kInf, 0, 30, -4}, {kNan, kInf, 0, 30, -4 * normal_cdf(-4)}, 2e-6);
  check(raw::Unary::sqrt, {kNan, kInf, -1, 0}, {kNan, kInf, kNan, 0}, 0);
  // Below the normal range, where a scale by one power of two would flush to zero.
  const Tensor tiny = make(repeated({-100, -103}), {80}, DType::float32);
  EXPECT_EQ(difference(raw::unary(raw::Unary::exp, tiny), repeated({std::exp(-100.0), std::exp(-103.0)}), 0, 0x1p-149),
            "");
  const Tensor subnormal = make(repeated({0x1p-140, 0x1p-149}), {80}, DType::float32);
  EXPECT_EQ(
      difference(raw::unary(raw::Unary::log, subnormal), repeated({-140 * std::log(2.0), -149 * std::log(2.0)}), 1e-6),
      "");
}

TEST(Unary, FloatFunctionsAreAccurateOverTheirRange) {
  const auto worst = [](raw::Unary op, double (*function)(double), double low, double high) {
    const Tensor x = random({200000}, DType::float32, 9, low, high);
    const std::vector<double> in = x.to_vector<double>();
    const std::vector<double> out = raw::unary(op, x).to_vector<double>();
    double most = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double expected = function(in[i]);
      most = std::max(most, std::fabs(out[i] - expected) / std::fabs(expected));
    }
    return most / 0x1p-24;  // in units of round-off
  };
  EXPECT_LT(worst(raw::Unary::exp, [](double x) { return std::exp(x); }, -87, 88), 4);
  EXPECT_LT(worst(raw::Unary::tanh, [](double x) { return std::tanh(x); }, -9, 9), 6);
  EXPECT_LT(worst(raw::Unary::log, [](double x) { return std::log(x); }, 1e-30, 0.9), 4);
  EXPECT_LT(worst(raw::Unary::log, [](double x) { return std::log(x); }, 1.1, 1e6), 4);
  EXPECT_LT(worst(raw::Unary::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80), 8);
  // exp(-x^2/2) carries the rounding of x^2, up to 18 at |x| = 6.
  EXPECT_LT(worst(raw::Unary::gelu, [](double x) { return x * normal_cdf(x); }, -6, 6), 60);
  EXPECT_LT(worst(raw::Unary::gelu, [](double x) { return x * normal_cdf(x); }, -1, 6), 12);
}

TEST(UnaryGrad, EveryOperationDtypeAndLayout) {
  struct Case {
    raw::UnaryGrad op;
    double (*function)(double g, double saved);
    double low;
    double high;
  };
  const std::vector<Case> cases = {
      {raw::UnaryGrad::relu, [](double g, double y) { return y > 0 ? g : 0; }, -1, 1},
      {raw::UnaryGrad::gelu, [](double g, double x) { return g * (normal_cdf(x) + x * normal_pdf(x)); }, -4, 4},
      {raw::UnaryGrad::sigmoid, [](double g, double y) { return g * y * (1 - y); }, 0, 0.9},
      {raw::UnaryGrad::tanh, [](double g, double y) { return g * (1 - y * y); }, -0.9, 0.9},
      {raw::UnaryGrad::exp, [](double g, double y) { return g * y; }, 0, 9},
      {raw::UnaryGrad::log, [](double g, double x) { return g / x; }, 0.1, 9},
      {raw::UnaryGrad::sqrt, [](double g, double y) { return g / (2 * y); }, 0.1, 9}};
  for (const Case& c : cases) {
    for (const DType dtype : kFloating) {
      for (const Layout layout : kLayouts) {
        const Tensor grad = lay_out(random({5, 37}, dtype, 1), layout);
        const Tensor saved = random({5, 37}, dtype, 2, c.low, c.high);
        std::vector<double> expected = grad.to_vector<double>();
        const std::vector<double> values = saved.to_vector<double>();
        for (std::size_t i = 0; i < values.size(); ++i) expected[i] = c.function(expected[i], values[i]);
        poison();
        EXPECT_EQ(difference(raw::unary_grad(c.op, grad, saved), expected, 2 * tolerance(dtype),
                             dtype == DType::float64 ? 1e-15 : 4e-7),
                  "");
      }
    }
  }
  EXPECT_EQ(error_of([] { raw::unary_grad(raw::UnaryGrad::relu, ones({2}), ones({3})); }),
            "unary_grad: saved has sizes [3], expected [2]");
}

const std::vector<std::pair<raw::Binary, double (*)(double, double)>> kBinary = {
    {raw::Binary::add, [](double a, double b) { return a + b; }},
    {raw::Binary::sub, [](double a, double b) { return a - b; }},
    {raw::Binary::mul, [](double a, double b) { return a * b; }},
    {raw::Binary::div, [](double a, double b) { return a / b; }}};

TEST(Binary, EveryOperationDtypeLayoutAndBroadcast) {
  struct Shapes {
    Dims a, b, out;
  };
  const std::vector<Shapes> shapes = {{{4, 33}, {4, 33}, {4, 33}},
                                      {{4, 33}, {33}, {4, 33}},
                                      {{4, 33}, {4, 1}, {4, 33}},
                                      {{1, 33}, {4, 1}, {4, 33}},
                                      {{}, {3, 5}, {3, 5}},
                                      {{2, 3, 1, 5}, {3, 4, 1}, {2, 3, 4, 5}},
                                      {{}, {}, {}},
                                      {{0, 3}, {1, 3}, {0, 3}}};
  for (const auto& [op, function] : kBinary) {
    for (const DType dtype : kEvery) {
      if (dtype == DType::boolean || (op == raw::Binary::div && !is_floating_point(dtype))) continue;
      for (const Shapes& s : shapes) {
        for (const Layout left : kLayouts) {
          for (const Layout right : kLayouts) {
            const Tensor a = lay_out(random(s.a, dtype, 1, -3, 3), left);
            const Tensor b = lay_out(random(s.b, dtype, 2, 1, 3), right);
            const std::vector<double> x = broadcast_values(a, s.out);
            const std::vector<double> y = broadcast_values(b, s.out);
            std::vector<double> expected;
            for (std::size_t i = 0; i < x.size(); ++i) {
              expected.push_back(function(x[i], y[i]));
              if (dtype == DType::uint8) expected.back() = static_cast<std::uint8_t>(static_cast<int>(expected.back()));
            }
            poison();
            const Tensor got = raw::binary(op, a, b);
            ASSERT_EQ(got.sizes(), s.out);
            // One operation in the compute type, then one rounding: at most 1.01 round-offs of the dtype.
            ASSERT_EQ(difference(got, expected, 1.01 * epsilon(dtype)), "");
            const Tensor out = lay_out(full(s.out, 9, got.options()), left);
            raw::binary(op, a, b, out);
            ASSERT_EQ(out.to_vector<double>(), got.to_vector<double>());
          }
        }
      }
    }
  }
}

TEST(Binary, InPlaceAndOverlapping) {
  Tensor x = make({1, 2, 3, 4}, {4}, DType::float32);
  raw::binary(raw::Binary::add, x, x, x);
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{2, 4, 6, 8}));
  // The output is the input moved by one element: as if all inputs were read first.
  raw::binary(raw::Binary::add, raw::slice(x, 0, 0, 3, 1), ones({3}), raw::slice(x, 0, 1, 4, 1));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{2, 3, 5, 7}));
  x = make({1, 2, 3, 4}, {2, 2}, DType::float32);
  raw::axpy_(x, raw::transpose(x, 0, 1), 10);
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{11, 32, 23, 44}));
  raw::mul_(x, raw::slice(x, 0, 0, 1, 1));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{121, 1024, 253, 1408}));
}

TEST(Binary, Errors) {
  const auto add = [](const Tensor& a, const Tensor& b) {
    return error_of([&] { raw::binary(raw::Binary::add, a, b); });
  };
  EXPECT_EQ(add(ones({2}), arange(2)), "add: dtypes float32 and int64 differ; convert one of them");
  EXPECT_EQ(add(ones({2}), ones({2}, {DType::float32, Device::cpu(1)})),
            "add: tensors are on cpu:0 and cpu:1; they must be on one device");
  EXPECT_NE(add(ones({2, 3}), ones({2})).find("[2, 3] and [2]"), std::string::npos);
  EXPECT_EQ(add(Tensor(), ones({1})), "add: first argument is an undefined tensor");
  EXPECT_EQ(error_of([] { raw::binary(raw::Binary::div, arange(2), arange(2)); }),
            "div: dtype int64; allowed: float32, float64, float16, bfloat16");
  EXPECT_EQ(error_of([] { raw::binary(raw::Binary::add, ones({2}), ones({2}), raw::expand(ones({1}), {2})); }),
            "add: cannot write to a tensor whose elements share memory (sizes [2], strides [0]); clone it first");
}

TEST(BinaryScalar, EveryOperationDtypeAndLayout) {
  for (const auto& [op, function] : kBinary) {
    for (const DType dtype : kEvery) {
      if (dtype == DType::boolean || (op == raw::Binary::div && !is_floating_point(dtype))) continue;
      for (const Layout layout : kLayouts) {
        for (const bool reversed : {false, true}) {
          const Tensor x = lay_out(random({5, 41}, dtype, 1, 1, 3), layout);
          std::vector<double> expected = x.to_vector<double>();
          for (double& value : expected) {
            value = reversed ? function(2, value) : function(value, 2);
            if (dtype == DType::uint8) value = static_cast<std::uint8_t>(static_cast<int>(value));
          }
          poison();
          EXPECT_EQ(difference(raw::binary_scalar(op, x, 2, reversed), expected, 1.01 * epsilon(dtype)), "");
        }
      }
    }
  }
  EXPECT_EQ(error_of([] { raw::binary_scalar(raw::Binary::mul, arange(2), 0.5); }),
            "mul: scalar 0.5 with dtype int64; allowed: whole numbers");
}

TEST(InPlace, AxpyScaleMul) {
  for (const DType dtype : kEvery) {
    if (dtype == DType::boolean) continue;
    for (const Layout layout : kLayouts) {
      const Tensor y = lay_out(make({1, 2, 3, 4, 5, 6}, {2, 3}, dtype), layout);
      raw::axpy_(y, lay_out(make({1, 2, 3}, {1, 3}, dtype), layout), 2);
      EXPECT_EQ(y.to_vector<int>(), (std::vector<int>{3, 6, 9, 6, 9, 12}));
      raw::scale_(y, 2);
      EXPECT_EQ(y.to_vector<int>(), (std::vector<int>{6, 12, 18, 12, 18, 24}));
      raw::mul_(y, make({1, 2}, {2, 1}, dtype));
      EXPECT_EQ(y.to_vector<int>(), (std::vector<int>{6, 12, 18, 24, 36, 48}));
    }
  }
  EXPECT_EQ(error_of([] { raw::axpy_(ones({3}), ones({2, 3}), 1); }), "axpy_: sizes [2, 3] cannot be broadcast to [3]");
  raw::scale_(empty({0}), 2);
  raw::axpy_(empty({0, 2}), ones({2}), 2);
}

TEST(EqualElements, EveryDtype) {
  for (const DType dtype : kEvery) {
    for (const Layout layout : kLayouts) {
      poison();
      const Tensor a = lay_out(make({1, 0, 1, 0}, {2, 2}, dtype), layout);
      const Tensor got = raw::equal_elements(a, make({1, 1}, {2}, dtype));
      EXPECT_EQ(got.dtype(), DType::boolean);
      EXPECT_EQ(got.to_vector<int>(), (std::vector<int>{1, 0, 1, 0}));
    }
  }
  const Tensor nan = full({1}, kNan);
  EXPECT_FALSE(raw::equal_elements(nan, nan).item<bool>());
}

TEST(DivGradB, EveryDtypeAndLayout) {
  for (const DType dtype : kFloating) {
    for (const Layout layout : kLayouts) {
      const Tensor grad = lay_out(random({3, 35}, dtype, 1), layout);
      const Tensor a = random({3, 35}, dtype, 2);
      const Tensor b = lay_out(random({3, 1}, dtype, 3, 1, 2), layout);
      std::vector<double> expected;
      const std::vector<double> g = grad.to_vector<double>();
      const std::vector<double> x = a.to_vector<double>();
      const std::vector<double> y = broadcast_values(b, {3, 35});
      for (std::size_t i = 0; i < g.size(); ++i) expected.push_back(-g[i] * x[i] / (y[i] * y[i]));
      EXPECT_EQ(difference(raw::div_grad_b(grad, a, b), expected, tolerance(dtype)), "");
    }
  }
}

TEST(Backend, WithoutAnImplementationNamesOperationFamilyAndDevice) {
  raw::ElementwiseBackend none;
  const Tensor x = ones({1});
  EXPECT_EQ(error_of<NotAvailable>([&] { none.unary(raw::Unary::exp, x, x); }),
            "unary: the family 'elementwise' has no implementation for cpu:0");
  EXPECT_EQ(error_of<NotAvailable>([] { raw::not_available("copy", "fill_", Device::cuda(1)); }),
            "fill_: the family 'copy' has no implementation for cuda:1 (not built with CUDA, or not there yet)");
}

TEST(Threads, ResultsDoNotDependOnThem) {
  const int before = num_threads();
  const Tensor x = random({300, 1001}, DType::float32, 1);
  const Tensor b = random({1001}, DType::float32, 2);
  set_num_threads(1);
  const std::vector<float> alone = raw::unary(raw::Unary::gelu, raw::binary(raw::Binary::add, x, b)).to_vector<float>();
  set_num_threads(3);
  EXPECT_EQ(raw::unary(raw::Unary::gelu, raw::binary(raw::Binary::add, x, b)).to_vector<float>(), alone);
  set_num_threads(before);
}

}  // namespace
}  // namespace ddp
