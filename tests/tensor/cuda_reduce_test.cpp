// Reductions on the GPU against the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "core/observer.h"
#include "ddp/autograd/functions.h"
#include "support/cuda_compare.h"
#include "tensor/copy.h"
#include "tensor/reduce.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;

const std::vector<DType> kFloats = {DType::float64, DType::float32, DType::bfloat16, DType::float16};
const std::vector<DType> kWhole = {DType::int32, DType::int64, DType::uint8, DType::boolean};
CudaCompare floats() { return {.dtypes = kFloats}; }
CudaCompare whole() { return {.dtypes = kWhole}; }

// Numbers from -0.5 to 1: the sums do not cancel, so that errors are measured against what was added.
CudaInput numbers(const Dims& sizes) { return {.sizes = sizes, .low = -0.5, .high = 1}; }

TEST(CudaSum, EveryChoiceOfDimensions) {
  for (const Dims& sizes :
       {Dims{3, 4, 5}, Dims{1, 7, 1}, Dims{2, 33, 17}, Dims{70, 3, 2}, Dims{0, 3, 2}, Dims{2, 0, 3}, Dims{4, 8, 64}}) {
    for (int mask = 1; mask < 8; ++mask) {
      Dims dims;
      for (int d = 0; d < 3; ++d) {
        if (((mask >> d) & 1) != 0) dims.push_back(d - 3);
      }
      const auto op = [&](const Inputs& in) {
        return std::vector<Tensor>{raw::sum(in[0], dims, false), raw::sum(in[0], dims, true)};
      };
      compare_cuda(concat("sum over ", dims), {numbers(sizes)}, op, floats());
      compare_cuda(concat("sum over ", dims), {{.sizes = sizes, .low = 0, .high = 200}}, op, whole());
    }
  }
}

TEST(CudaSum, AllAndTheShapesOfTraining) {
  const auto over = [](const Dims& dims) { return [dims](const Inputs& in) { return raw::sum(in[0], dims, false); }; };
  compare_cuda("sum of one", {numbers({})}, over({}), floats());
  compare_cuda("sum of all", {numbers({1000003})}, over({}), floats());
  compare_cuda("sum of all", {numbers({300, 1001})}, over({}), floats());
  compare_cuda("bias of a linear layer", {numbers({64, 1024})}, over({0}), floats());
  compare_cuda("bias of a large batch", {numbers({5000, 300})}, over({0}), floats());
  compare_cuda("few columns", {numbers({200000, 3})}, over({0}), floats());
  compare_cuda("bias of a convolution", {numbers({16, 32, 28, 28})}, over({0, 2, 3}), floats());
  compare_cuda("bias of a convolution", {numbers({7, 5, 13, 11})}, over({0, 2, 3}), floats());
  compare_cuda("rows", {numbers({3000, 10})}, over({1}), floats());
  compare_cuda("long rows", {numbers({40, 20000})}, over({1}), floats());
}

TEST(CudaSum, OutAccumulateAndNan) {
  for (const bool accumulate : {false, true}) {
    compare_cuda(
        "sum into out", {numbers({5, 64, 3}), {.sizes = {64, 3}, .written = true}},
        [accumulate](const Inputs& in) { return raw::sum(in[0], {0}, false, in[1], accumulate); }, floats());
    compare_cuda(
        "sum of nothing", {numbers({0, 6}), {.sizes = {6}, .written = true}},
        [accumulate](const Inputs& in) { return raw::sum(in[0], {0}, false, in[1], accumulate); }, floats());
    compare_cuda(
        "sum_to", {numbers({4, 3, 40}), {.sizes = {3, 1}, .written = true}},
        [accumulate](const Inputs& in) { return raw::sum_to(in[0], {3, 1}, in[1], accumulate); }, floats());
    compare_cuda(
        "sum_to the same", {numbers({4, 3, 40}), {.sizes = {4, 3, 40}, .written = true}},
        [accumulate](const Inputs& in) { return raw::sum_to(in[0], {4, 3, 40}, in[1], accumulate); }, floats());
    compare_cuda(
        "sum in parts into out", {numbers({70000, 9}), {.sizes = {9}, .written = true}},
        [accumulate](const Inputs& in) { return raw::sum(in[0], {0}, false, in[1], accumulate); }, floats());
  }
  compare_cuda(
      "sum over itself", {{.sizes = {8, 8}, .low = 0.1, .written = true}},
      [](const Inputs& in) {
        raw::sum(in[0], {0}, true, raw::slice(in[0], 0, 0, 1, 1));
        return in[0];
      },
      floats());
  compare_cuda(
      "sum with NaN", {{.sizes = {50, 40}, .specials = true}},
      [](const Inputs& in) { return raw::sum(in[0], {0}, false); }, floats());
}

int launches = 0;

TEST(CudaSum, EveryLaunchIsCounted) {
  static const core::Observer counter = {.launch = [](const char*, Device) { ++launches; }};
  const core::Observer* before = core::observer();
  const auto count = [&](const Dims& sizes) {
    const Tensor x = ones(sizes, {DType::float32, Device::cuda(0)});
    core::set_observer(&counter);
    launches = 0;
    const Tensor y = raw::sum(x, {0}, false);
    const int seen = launches;
    core::set_observer(before);
    EXPECT_EQ(y.to_vector<float>(),
              std::vector<float>(static_cast<std::size_t>(sizes[1]), static_cast<float>(sizes[0])));
    return seen;
  };
  EXPECT_EQ(count({64, 1024}), 1);    // the gradient of a bias
  EXPECT_EQ(count({100000, 32}), 2);  // in parts, then the parts
}

TEST(CudaMax, EveryDimensionAndTies) {
  for (const Dims& sizes : {Dims{3, 4, 5}, Dims{2, 300, 3}, Dims{33, 2, 1000}, Dims{64, 1, 10}}) {
    for (const std::int64_t dim : {0, 1, 2}) {
      const auto op = [&](const Inputs& in) {
        const raw::MaxResult found = raw::max(in[0], dim, false);
        return std::vector<Tensor>{found.values, found.indices};
      };
      compare_cuda("max", {{{sizes}}}, op, floats());
      compare_cuda("max with NaN", {{.sizes = sizes, .specials = true}}, op, floats());
      compare_cuda("max with ties", {{.sizes = sizes, .low = 0, .high = 4}}, op, whole());
    }
  }
  compare_cuda(
      "max of all", {{{100003}}},
      [](const Inputs& in) {
        const raw::MaxResult found = raw::max(in[0], 0, true);
        return std::vector<Tensor>{found.values, found.indices};
      },
      floats());
  compare_cuda(
      "max of nothing", {{{0, 3}}}, [](const Inputs& in) { return raw::max(in[0], 1, false).values; }, floats());
}

TEST(CudaScatterByIndex, AsOnTheCpu) {
  for (const std::int64_t dim : {0, 1, 2}) {
    Dims sizes = {6, 5, 33};
    Dims one = sizes;
    one[static_cast<std::size_t>(dim)] = 1;
    const auto op = [&](const Inputs& in) { return raw::scatter_by_index(in[0], in[1], sizes, dim, true); };
    const CudaInput index = {.sizes = one, .low = 0, .high = 5, .dtype = DType::int64};
    compare_cuda("scatter_by_index", {numbers(one), index}, op, floats());
    compare_cuda("scatter_by_index", {{.sizes = one, .low = 0, .high = 9}, index}, op, whole());
  }
}

TEST(CudaOfAll, SquaresAndNonFinite) {
  for (const Dims& sizes : {Dims{}, Dims{7, 41}, Dims{64, 128}, Dims{300007}, Dims{0}}) {
    const auto op = [](const Inputs& in) {
      return std::vector<Tensor>{raw::sum_of_squares(in[0]), raw::count_nonfinite(in[0])};
    };
    compare_cuda("sum of squares and count of non-finite", {{{sizes}}}, op, floats());
    compare_cuda(
        "count of non-finite", {{.sizes = sizes, .specials = true}},
        [](const Inputs& in) { return raw::count_nonfinite(in[0]); }, floats());
  }
  // Does not overflow where the squares do.
  EXPECT_EQ(raw::sum_of_squares(full({4}, 0x1p100, {DType::float32, Device::cuda(0)})).item<double>(), 0x1p202);
}

TEST(CudaFunctions, GradientsOfReductionsAsOnTheCpu) {
  compare_cuda_grad("sum", {numbers({4, 6, 10})}, [](const Inputs& in) { return ddp::sum(in[0]); }, floats());
  compare_cuda_grad(
      "sum over two", {numbers({4, 6, 10})}, [](const Inputs& in) { return ddp::sum(in[0], {0, 2}); }, floats());
  compare_cuda_grad("mean", {numbers({4, 6, 10})}, [](const Inputs& in) { return ddp::mean(in[0]); });
  compare_cuda_grad("mean over one", {numbers({4, 6, 10})},
                    [](const Inputs& in) { return ddp::mean(in[0], {1}, true); });
  compare_cuda_grad("max", {numbers({4, 6, 10})}, [](const Inputs& in) { return ddp::max(in[0], 1).values; }, floats());
  compare_cuda_grad("max of all", {numbers({40, 60})}, [](const Inputs& in) { return ddp::max(in[0]); }, floats());
  compare_cuda_grad(
      "broadcast", {numbers({64, 40}), numbers({40}), numbers({64, 1})},
      [](const Inputs& in) { return in[0] * in[1] + in[2]; }, floats());
}

}  // namespace
}  // namespace ddp
