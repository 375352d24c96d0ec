// Elementwise operations on the GPU against the CPU: every operation, floating and whole-number dtypes, layouts.
#include <gtest/gtest.h>

#include "ddp/autograd/functions.h"
#include "support/cuda_compare.h"
#include "tensor/elementwise.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using raw::Binary;
using raw::Unary;
using raw::UnaryGrad;
using Inputs = std::vector<Tensor>;

const std::vector<DType> kFloats = {DType::float64, DType::float32, DType::bfloat16, DType::float16};
const std::vector<DType> kWhole = {DType::int32, DType::int64, DType::uint8};

CudaCompare floats() { return {.dtypes = kFloats}; }
CudaCompare whole() { return {.dtypes = kWhole}; }

struct UnaryCase {
  const char* name;
  Unary op;
  double low;
  double high;
};

TEST(CudaUnary, EveryOperation) {
  const UnaryCase cases[] = {
      {"neg", Unary::neg, -4, 4},           {"relu", Unary::relu, -4, 4},    {"gelu", Unary::gelu, -6, 6},
      {"sigmoid", Unary::sigmoid, -10, 10}, {"tanh", Unary::tanh, -5, 5},    {"exp", Unary::exp, -9, 9},
      {"log", Unary::log, 0.01, 30},        {"sqrt", Unary::sqrt, 0, 30},    {"reciprocal", Unary::reciprocal, 0.1, 9},
      {"abs", Unary::abs, -4, 4},           {"square", Unary::square, -4, 4}};
  for (const UnaryCase& c : cases) {
    const auto op = [&](const Inputs& in) { return raw::unary(c.op, in[0]); };
    for (const Dims& sizes : {Dims{}, Dims{5}, Dims{3, 67}, Dims{2, 5, 8}, Dims{0, 3}, Dims{64, 1024}}) {
      compare_cuda(c.name, {{.sizes = sizes, .low = c.low, .high = c.high}}, op, floats());
    }
    // NaN, infinities and both zeros.
    compare_cuda(c.name, {{.sizes = {7, 37}, .low = c.low, .high = c.high, .specials = true}}, op, floats());
  }
  for (const UnaryCase& c : {cases[0], cases[9], cases[10]}) {
    const auto op = [&](const Inputs& in) { return raw::unary(c.op, in[0]); };
    compare_cuda(c.name, {{.sizes = {9, 35}, .low = 0, .high = 250}}, op, whole());
    compare_cuda(c.name, {{.sizes = {9, 35}, .low = -2e9, .high = 2e9}}, op, {.dtypes = {DType::int32, DType::int64}});
  }
}

TEST(CudaUnary, TheEdgesOfTheRange) {
  // exp near float32's largest and smallest numbers; what overflows there is infinite.
  compare_cuda("exp", {{.sizes = {40, 25}, .low = 87, .high = 90}},
               [](const Inputs& in) { return raw::unary(Unary::exp, in[0]); }, {.dtypes = {DType::float32}});
  compare_cuda(
      "tanh of small numbers", {{.sizes = {1000}, .low = -1e-4, .high = 1e-4}},
      [](const Inputs& in) { return raw::unary(Unary::tanh, in[0]); }, floats());
  compare_cuda("gelu far out", {{.sizes = {1000}, .low = -12, .high = -4}},
               [](const Inputs& in) { return raw::unary(Unary::gelu, in[0]); },
               {.dtypes = {DType::float64, DType::float32}});
}

TEST(CudaUnaryGrad, EveryOperation) {
  struct Case {
    const char* name;
    UnaryGrad op;
    double low;
    double high;
  };
  const Case cases[] = {{"relu_grad", UnaryGrad::relu, -1, 1},      {"gelu_grad", UnaryGrad::gelu, -4, 4},
                        {"sigmoid_grad", UnaryGrad::sigmoid, 0, 1}, {"tanh_grad", UnaryGrad::tanh, -0.9, 0.9},
                        {"exp_grad", UnaryGrad::exp, 0, 9},         {"log_grad", UnaryGrad::log, 0.1, 9},
                        {"sqrt_grad", UnaryGrad::sqrt, 0.1, 9}};
  for (const Case& c : cases) {
    const auto op = [&](const Inputs& in) { return raw::unary_grad(c.op, in[0], in[1]); };
    for (const Dims& sizes : {Dims{}, Dims{7}, Dims{5, 37}, Dims{2, 3, 16}, Dims{3, 0}}) {
      compare_cuda(c.name, {{.sizes = sizes}, {.sizes = sizes, .low = c.low, .high = c.high}}, op, floats());
    }
    compare_cuda(
        c.name,
        {{.sizes = {6, 40}, .specials = true}, {.sizes = {6, 40}, .low = c.low, .high = c.high, .specials = true}}, op,
        floats());
  }
}

struct Shapes {
  Dims a;
  Dims b;
};
const std::vector<Shapes> kShapes = {
    {{4, 33}, {4, 33}},        {{4, 33}, {33}}, {{4, 33}, {4, 1}}, {{1, 33}, {4, 1}},  {{}, {3, 5}},
    {{2, 3, 1, 5}, {3, 4, 1}}, {{}, {}},        {{0, 3}, {1, 3}},  {{64, 128}, {128}}, {{5, 64}, {5, 1}},
    {{2, 8, 6, 6}, {8, 1, 1}}};
const std::pair<const char*, Binary> kBinary[] = {
    {"add", Binary::add}, {"sub", Binary::sub}, {"mul", Binary::mul}, {"div", Binary::div}};

TEST(CudaBinary, EveryOperationAndBroadcast) {
  for (const auto& [name, op] : kBinary) {
    const auto run = [operation = op](const Inputs& in) { return raw::binary(operation, in[0], in[1]); };
    for (const Shapes& s : kShapes) {
      compare_cuda(name, {{.sizes = s.a, .low = -3, .high = 3}, {.sizes = s.b, .low = 0.5, .high = 3}}, run, floats());
      if (op != Binary::div) {
        compare_cuda(name, {{.sizes = s.a, .low = 0, .high = 250}, {.sizes = s.b, .low = 0, .high = 250}}, run,
                     whole());
      }
    }
    compare_cuda(name, {{.sizes = {9, 41}, .specials = true}, {.sizes = {9, 41}, .specials = true}}, run, floats());
  }
  // Whole numbers wrap around.
  compare_cuda("mul", {{.sizes = {100}, .low = -2e9, .high = 2e9}, {.sizes = {100}, .low = -2e9, .high = 2e9}},
               [](const Inputs& in) { return raw::binary(Binary::mul, in[0], in[1]); },
               {.dtypes = {DType::int32, DType::int64}});
}

TEST(CudaBinary, IntoAnOutAndInPlace) {
  // Into an output with strides of its own, over an input, and over a part of an input that is moved by one.
  compare_cuda(
      "add into out", {{{6, 21}}, {{6, 21}}, {.sizes = {6, 21}, .written = true}},
      [](const Inputs& in) { return raw::binary(Binary::add, in[0], in[1], in[2]); }, floats());
  compare_cuda(
      "add over itself", {{.sizes = {6, 24}, .written = true}, {{6, 24}}},
      [](const Inputs& in) { return raw::binary(Binary::add, in[0], in[1], in[0]); }, floats());
  compare_cuda(
      "overlapping", {{.sizes = {30}, .written = true}},
      [](const Inputs& in) {
        const Tensor from = raw::slice(in[0], 0, 0, 29, 1);
        raw::binary(Binary::add, from, from, raw::slice(in[0], 0, 1, 30, 1));
        return in[0];
      },
      floats());
}

TEST(CudaBinaryScalar, EveryOperation) {
  for (const auto& [name, op] : kBinary) {
    for (const bool reversed : {false, true}) {
      const auto run = [operation = op, reversed](const Inputs& in) {
        return raw::binary_scalar(operation, in[0], 3, reversed);
      };
      for (const Dims& sizes : {Dims{}, Dims{5, 41}, Dims{4, 64}, Dims{0}}) {
        compare_cuda(name, {{.sizes = sizes, .low = 0.5, .high = 3}}, run, floats());
        if (op != Binary::div) compare_cuda(name, {{.sizes = sizes, .low = 0, .high = 250}}, run, whole());
      }
      compare_cuda(name, {{.sizes = {5, 41}, .specials = true}}, run, floats());
    }
  }
  compare_cuda(
      "mul by a fraction", {{{5, 41}}},
      [](const Inputs& in) { return raw::binary_scalar(Binary::mul, in[0], 1.0 / 3); }, floats());
}

TEST(CudaInPlace, AxpyScaleMul) {
  for (const Shapes& s :
       {Shapes{{6, 35}, {6, 35}}, Shapes{{6, 64}, {64}}, Shapes{{6, 35}, {6, 1}}, Shapes{{0, 2}, {2}}}) {
    for (const double alpha : {1.0, -3.0}) {
      const auto axpy = [alpha](const Inputs& in) {
        raw::axpy_(in[0], in[1], alpha);
        return in[0];
      };
      compare_cuda("axpy_", {{.sizes = s.a, .written = true}, {.sizes = s.b}}, axpy, floats());
      compare_cuda("axpy_",
                   {{.sizes = s.a, .low = 0, .high = 250, .written = true}, {.sizes = s.b, .low = 0, .high = 250}},
                   axpy, whole());
    }
    compare_cuda(
        "mul_", {{.sizes = s.a, .written = true}, {.sizes = s.b}},
        [](const Inputs& in) {
          raw::mul_(in[0], in[1]);
          return in[0];
        },
        floats());
    compare_cuda(
        "scale_", {{.sizes = s.a, .written = true}},
        [](const Inputs& in) {
          raw::scale_(in[0], 0.7);
          return in[0];
        },
        floats());
  }
}

TEST(CudaEqualElements, EveryDtype) {
  CudaCompare every = {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16, DType::int32,
                                  DType::int64, DType::uint8, DType::boolean}};
  for (const Shapes& s : kShapes) {
    compare_cuda(
        "equal_elements", {{.sizes = s.a, .low = 0, .high = 3}, {.sizes = s.b, .low = 0, .high = 3}},
        [](const Inputs& in) {
          // Few different values, so that some are equal.
          const Tensor a = raw::to(raw::to(in[0], DType::uint8), in[0].dtype());
          const Tensor b = raw::to(raw::to(in[1], DType::uint8), in[0].dtype());
          return raw::equal_elements(a, b);
        },
        every);
  }
  compare_cuda(
      "equal_elements", {{.sizes = {9, 41}, .specials = true}},
      [](const Inputs& in) { return raw::equal_elements(in[0], in[0]); }, floats());
}

TEST(CudaDivGradB, AsOnTheCpu) {
  const auto run = [](const Inputs& in) { return raw::div_grad_b(in[0], in[1], in[2]); };
  compare_cuda("div_grad_b", {{{3, 35}}, {{3, 35}}, {.sizes = {3, 1}, .low = 1, .high = 2}}, run, floats());
  compare_cuda("div_grad_b", {{{4, 64}}, {{64}}, {.sizes = {4, 64}, .low = 1, .high = 2}}, run, floats());
  compare_cuda("div_grad_b", {{{0, 35}}, {{0, 35}}, {{1}}}, run, floats());
}

TEST(CudaFunctions, GradientsAsOnTheCpu) {
  const std::pair<const char*, Tensor (*)(const Tensor&)> unary[] = {
      {"relu", &ddp::relu}, {"gelu", &ddp::gelu}, {"sigmoid", &ddp::sigmoid}, {"tanh", &ddp::tanh},
      {"exp", &ddp::exp},   {"log", &ddp::log},   {"sqrt", &ddp::sqrt},       {"neg", &ddp::neg}};
  for (const auto& [name, function] : unary) {
    const bool positive = function == &ddp::log || function == &ddp::sqrt;
    compare_cuda_grad(
        name, {{.sizes = {7, 33}, .low = positive ? 0.2 : -2, .high = 2}},
        [f = function](const Inputs& in) { return f(in[0]); }, floats());
  }
  for (const Shapes& s : {Shapes{{4, 33}, {33}}, Shapes{{1, 33}, {4, 1}}, Shapes{{2, 3, 8}, {2, 3, 8}}}) {
    const std::vector<CudaInput> inputs = {{.sizes = s.a, .low = -2, .high = 2}, {.sizes = s.b, .low = 1, .high = 2}};
    compare_cuda_grad("add", inputs, [](const Inputs& in) { return in[0] + in[1]; }, floats());
    compare_cuda_grad("sub", inputs, [](const Inputs& in) { return in[0] - in[1]; }, floats());
    compare_cuda_grad("mul", inputs, [](const Inputs& in) { return in[0] * in[1]; }, floats());
    compare_cuda_grad("div", inputs, [](const Inputs& in) { return in[0] / in[1]; }, floats());
  }
  compare_cuda_grad(
      "scalars", {{.sizes = {5, 12}, .low = 1, .high = 2}},
      [](const Inputs& in) { return (2.0 - in[0] * 3.0) / 2.0 + 1.0 / in[0]; }, floats());
}

}  // namespace
}  // namespace ddp
