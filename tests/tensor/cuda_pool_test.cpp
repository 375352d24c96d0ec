// Pooling on the GPU against the CPU.
#include <gtest/gtest.h>

#include "ddp/autograd/functions.h"
#include "support/cuda_compare.h"
#include "tensor/conv.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;

CudaCompare floats() { return {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16}}; }

struct Case {
  Dims x;
  raw::PoolParams params;
};
std::vector<Case> cases() {
  return {{{2, 3, 8, 8}, {.kernel = {2, 2}, .stride = {2, 2}}},                       // two outputs a thread
          {{3, 5, 24, 24}, {.kernel = {2, 2}, .stride = {2, 2}}},                     // the same, more blocks
          {{2, 3, 6, 6}, {.kernel = {2, 2}, .stride = {2, 2}}},                       // rows not in fours
          {{2, 3, 7, 9}, {.kernel = {2, 2}, .stride = {2, 2}}},                       // a line and a column left over
          {{1, 2, 9, 12}, {.kernel = {2, 2}, .stride = {2, 2}}},                      // a line left over
          {{2, 4, 11, 10}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},  // windows overlap and are cut
          {{1, 2, 5, 13}, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}}},   // gaps between windows
          {{1, 3, 4, 4}, {.kernel = {1, 1}, .stride = {1, 1}}},
          {{2, 2, 12, 20}, {.kernel = {9, 11}, .stride = {2, 5}, .padding = {4, 5}}},  // large windows
          {{1, 1, 1, 1}, {.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}}}};
}

Dims out_sizes(const Case& c) { return raw::avg_pool2d(zeros(c.x), c.params).sizes(); }

TEST(CudaPool, Max) {
  for (const Case& c : cases()) {
    compare_cuda(
        "max pool", {{.sizes = c.x}, {.sizes = out_sizes(c)}},
        [&](const Inputs& in) {
          const auto y = raw::max_pool2d(in[0], c.params);
          return Inputs{y.values, y.indices, raw::max_pool2d_grad(in[1], y.indices, c.x, c.params)};
        },
        floats());
  }
}

TEST(CudaPool, MaxAmongEqualsNanAndInfinity) {
  for (const Case& c : cases()) {
    // Numbers -1, 0 and 1: the first of equals.
    const auto op = [&](const Inputs& in) {
      const auto y = raw::max_pool2d(raw::to(raw::to(in[0], DType::int32), DType::float32), c.params);
      return Inputs{y.values, y.indices};
    };
    compare_cuda("max pool of equals", {{.sizes = c.x, .low = -2, .high = 2}}, op,
                 {.dtypes = {DType::float32}, .layouts = {CudaLayout::row_major}});
    compare_cuda(
        "max pool of special numbers", {{.sizes = c.x, .specials = true}},
        [&](const Inputs& in) {
          const auto y = raw::max_pool2d(in[0], c.params);
          return Inputs{y.values, y.indices};
        },
        floats());
  }
}

TEST(CudaPool, Average) {
  for (Case c : cases()) {
    for (const bool padding : {false, true}) {
      c.params.count_include_pad = padding;
      compare_cuda(
          "average pool", {{.sizes = c.x}, {.sizes = out_sizes(c)}},
          [&](const Inputs& in) {
            return Inputs{raw::avg_pool2d(in[0], c.params), raw::avg_pool2d_grad(in[1], c.x, c.params)};
          },
          floats());
    }
  }
}

TEST(CudaPool, AdaptiveAverage) {
  const struct {
    Dims x;
    raw::Pair out;
  } adaptive[] = {{{2, 3, 7, 7}, {1, 1}}, {{2, 3, 8, 9}, {3, 2}},   {{1, 2, 3, 4}, {5, 7}},
                  {{2, 2, 6, 6}, {6, 6}}, {{1, 3, 33, 40}, {1, 1}}, {{1, 3, 33, 40}, {2, 3}}};
  for (const auto& c : adaptive) {
    compare_cuda(
        "adaptive average pool", {{.sizes = c.x}, {.sizes = {c.x[0], c.x[1], c.out.h, c.out.w}}},
        [&](const Inputs& in) {
          return Inputs{raw::adaptive_avg_pool2d(in[0], c.out), raw::adaptive_avg_pool2d_grad(in[1], c.x)};
        },
        floats());
  }
}

TEST(CudaPool, NoElements) {
  const Dims none = {0, 3, 8, 8};
  compare_cuda("pools of nothing", {{.sizes = none}, {.sizes = {0, 3, 4, 4}}}, [&](const Inputs& in) {
    const raw::PoolParams half{.kernel = {2, 2}, .stride = {2, 2}};
    const auto y = raw::max_pool2d(in[0], half);
    return Inputs{y.values,
                  y.indices,
                  raw::max_pool2d_grad(in[1], y.indices, none, half),
                  raw::avg_pool2d(in[0], half),
                  raw::avg_pool2d_grad(in[1], none, half),
                  raw::adaptive_avg_pool2d(in[0], {2, 2}),
                  raw::adaptive_avg_pool2d_grad(in[1], none)};
  });
}

TEST(CudaPool, GradientsThroughTheGraph) {
  compare_cuda_grad("max_pool2d", {{.sizes = {2, 3, 8, 12}}},
                    [](const auto& in) { return max_pool2d(in[0], 2, {.stride = 2}); });
  compare_cuda_grad("max_pool2d, overlapping", {{.sizes = {2, 3, 9, 12}}},
                    [](const auto& in) { return max_pool2d(in[0], 3, {.stride = 2, .padding = 1}); });
  compare_cuda_grad("avg_pool2d", {{.sizes = {2, 3, 9, 12}}},
                    [](const auto& in) { return avg_pool2d(in[0], 3, {.stride = 2, .padding = 1}); });
  compare_cuda_grad("adaptive_avg_pool2d", {{.sizes = {2, 3, 9, 12}}},
                    [](const auto& in) { return adaptive_avg_pool2d(in[0], 2); });
}

}  // namespace
}  // namespace ddp
