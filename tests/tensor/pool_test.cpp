#include <gtest/gtest.h>

#include "dense_reference.h"
#include "tensor/conv.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

struct Case {
  Dims x;
  raw::PoolParams params;
};

std::vector<Case> cases() {
  return {{{2, 3, 6, 8}, {.kernel = {2, 2}, .stride = {2, 2}}},
          {{2, 3, 24, 24}, {.kernel = {2, 2}, .stride = {2, 2}}},
          {{1, 2, 7, 41}, {.kernel = {2, 2}, .stride = {2, 2}}},  // rows and columns left over
          {{2, 1, 5, 16}, {.kernel = {2, 2}, .stride = {2, 2}}},
          {{2, 3, 9, 10}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
          {{2, 3, 9, 10}, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {0, 1}}},
          {{2, 3, 9, 10}, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .count_include_pad = false}},
          {{1, 1, 1, 1}, {.kernel = {1, 1}, .stride = {1, 1}}},
          {{0, 3, 4, 4}, {.kernel = {2, 2}, .stride = {2, 2}}}};
}

Dims out_sizes(const Case& c) {
  const auto& p = c.params;
  return {c.x[0], c.x[1], (c.x[2] + 2 * p.padding.h - p.kernel.h) / p.stride.h + 1,
          (c.x[3] + 2 * p.padding.w - p.kernel.w) / p.stride.w + 1};
}

// Calls f(output, input, place in the plane) for each pair of an output and an input in its window, in
// row-major order, and returns how many inputs each output has.
template <class F>
std::vector<int> for_windows(const Case& c, F&& f) {
  const Dims y = out_sizes(c);
  const auto& p = c.params;
  std::vector<int> counts(static_cast<std::size_t>(y.product()));
  std::size_t output = 0;
  for (std::int64_t plane = 0; plane < y[0] * y[1]; ++plane) {
    for (std::int64_t i = 0; i < y[2]; ++i) {
      for (std::int64_t j = 0; j < y[3]; ++j, ++output) {
        for (std::int64_t a = i * p.stride.h - p.padding.h; a < i * p.stride.h - p.padding.h + p.kernel.h; ++a) {
          for (std::int64_t b = j * p.stride.w - p.padding.w; b < j * p.stride.w - p.padding.w + p.kernel.w; ++b) {
            if (a < 0 || b < 0 || a >= c.x[2] || b >= c.x[3]) continue;
            f(output, static_cast<std::size_t>((plane * c.x[2] + a) * c.x[3] + b), static_cast<int>(a * c.x[3] + b));
            ++counts[output];
          }
        }
      }
    }
  }
  return counts;
}

TEST(Pool, MaxWithIndicesAndGradient) {
  std::uint64_t seed = 1;
  for (const DType dtype : kDense) {
    for (const Case& c : cases()) {
      // Few different numbers: ties are frequent, and the first of them counts.
      const Tensor x = whole_numbers(c.x, dtype, ++seed, -2, 2);
      const Tensor grad = whole_numbers(out_sizes(c), dtype, ++seed);
      const auto xv = x.to_vector<double>();
      const auto gv = grad.to_vector<double>();
      std::vector<double> values(gv.size(), -1e9);
      std::vector<int> indices(gv.size());
      std::vector<std::size_t> sources(gv.size());
      for_windows(c, [&](std::size_t output, std::size_t input, int place) {
        if (xv[input] <= values[output]) return;
        values[output] = xv[input];
        indices[output] = place;
        sources[output] = input;
      });
      std::vector<double> x_grad(xv.size());
      for (std::size_t i = 0; i < gv.size(); ++i) x_grad[sources[i]] += gv[i];
      for (const Layout layout : kLayouts) {
        poison();
        const auto y = raw::max_pool2d(lay_out(x, layout), c.params);
        EXPECT_EQ(y.values.sizes(), out_sizes(c));
        EXPECT_EQ(y.values.to_vector<double>(), values) << to_string(c.x);
        EXPECT_EQ(y.indices.to_vector<int>(), indices) << to_string(c.x);
        EXPECT_EQ(raw::max_pool2d_grad(lay_out(grad, layout), y.indices, c.x, c.params).to_vector<double>(), x_grad);
      }
    }
  }
}

TEST(Pool, MaxOfNaNAndInfinity) {
  for (const std::int64_t width : {4, 32}) {  // below and above what the vector path needs
    const Tensor x = full({1, 1, 2, width}, -std::numeric_limits<double>::infinity());
    x.data_ptr<float>()[3] = std::nanf("");
    x.data_ptr<float>()[width] = 1;
    const auto y = raw::max_pool2d(x, {.kernel = {2, 2}, .stride = {2, 2}});
    EXPECT_EQ(y.values.data_ptr<float>()[0], 1);
    EXPECT_EQ(y.indices.data_ptr<std::int32_t>()[0], width);
    EXPECT_TRUE(std::isnan(y.values.data_ptr<float>()[1]));
    EXPECT_EQ(y.indices.data_ptr<std::int32_t>()[1], 3);
  }
  const auto y = raw::max_pool2d(full({1, 1, 2, 16}, -std::numeric_limits<double>::infinity()),
                                 {.kernel = {2, 2}, .stride = {2, 2}});
  EXPECT_EQ(y.indices.to_vector<int>(), (std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14}));
}

TEST(Pool, AverageAndGradient) {
  std::uint64_t seed = 1;
  for (const DType dtype : kDense) {
    for (const Case& c : cases()) {
      const Tensor x = whole_numbers(c.x, dtype, ++seed);
      const Tensor grad = whole_numbers(out_sizes(c), dtype, ++seed);
      const auto xv = x.to_vector<double>();
      const auto gv = grad.to_vector<double>();
      std::vector<double> values(gv.size());
      const auto counts = for_windows(c, [&](std::size_t o, std::size_t i, int) { values[o] += xv[i]; });
      const auto divisor = [&](std::size_t o) {
        return c.params.count_include_pad ? static_cast<double>(c.params.kernel.h * c.params.kernel.w) : counts[o];
      };
      for (std::size_t o = 0; o < values.size(); ++o) values[o] /= divisor(o);
      std::vector<double> x_grad(xv.size());
      for_windows(c, [&](std::size_t o, std::size_t i, int) { x_grad[i] += gv[o] / divisor(o); });
      const double tolerance = 4 * epsilon(dtype);  // one division, and up to nine roundings of shares below 1
      for (const Layout layout : kLayouts) {
        poison();
        EXPECT_EQ(difference(raw::avg_pool2d(lay_out(x, layout), c.params), values, tolerance), "");
        EXPECT_EQ(difference(raw::avg_pool2d_grad(lay_out(grad, layout), c.x, c.params), x_grad, tolerance, tolerance),
                  "");
      }
    }
  }
}

TEST(Pool, AdaptiveAverageAndGradient) {
  for (const DType dtype : kDense) {
    for (const auto& [h, w, p, q] :
         std::vector<std::array<std::int64_t, 4>>{{8, 8, 2, 4}, {7, 5, 3, 2}, {3, 4, 5, 6}, {6, 9, 1, 1}}) {
      const Tensor x = whole_numbers({2, 3, h, w}, dtype, 1);
      const Tensor grad = whole_numbers({2, 3, p, q}, dtype, 2);
      const auto xv = x.to_vector<double>();
      const auto gv = grad.to_vector<double>();
      std::vector<double> values(gv.size());
      std::vector<double> x_grad(xv.size());
      std::size_t o = 0;
      for (std::int64_t plane = 0; plane < 6; ++plane) {
        for (std::int64_t i = 0; i < p; ++i) {
          for (std::int64_t j = 0; j < q; ++j, ++o) {
            const std::int64_t top = i * h / p;
            const std::int64_t bottom = ((i + 1) * h + p - 1) / p;
            const std::int64_t left = j * w / q;
            const std::int64_t right = ((j + 1) * w + q - 1) / q;
            const double count = static_cast<double>((bottom - top) * (right - left));
            for (std::int64_t a = top; a < bottom; ++a) {
              for (std::int64_t b = left; b < right; ++b) {
                const auto at = static_cast<std::size_t>((plane * h + a) * w + b);
                values[o] += xv[at] / count;
                x_grad[at] += gv[o] / count;
              }
            }
          }
        }
      }
      const double tolerance = 4 * epsilon(dtype);
      for (const Layout layout : kLayouts) {
        poison();
        EXPECT_EQ(difference(raw::adaptive_avg_pool2d(lay_out(x, layout), {p, q}), values, tolerance, 1e-12), "");
        EXPECT_EQ(
            difference(raw::adaptive_avg_pool2d_grad(lay_out(grad, layout), x.sizes()), x_grad, tolerance, tolerance),
            "");
      }
    }
  }
  EXPECT_EQ(raw::adaptive_avg_pool2d(zeros({0, 3, 4, 4}), {2, 2}).sizes(), (Dims{0, 3, 2, 2}));
}

TEST(Pool, WrongArgumentsAreNamed) {
  EXPECT_NE(error_of([] { raw::max_pool2d(zeros({2, 3, 4}), {}); }).find("expected [N, C, H, W]"), std::string::npos);
  EXPECT_NE(error_of([] { raw::max_pool2d(zeros({2, 3, 4, 4}), {.kernel = {5, 5}}); }).find("kernel of size 5"),
            std::string::npos);
  EXPECT_NE(
      error_of([] { raw::avg_pool2d(zeros({2, 3, 4, 4}), {.kernel = {2, 2}, .padding = {2, 2}}); }).find("padding 2"),
      std::string::npos);
  EXPECT_NE(error_of([] { raw::avg_pool2d(zeros({2, 3, 4, 4}), {.stride = {0, 1}}); }).find("stride 0"),
            std::string::npos);
  EXPECT_NE(error_of([] { raw::max_pool2d(zeros({2, 3, 0, 4}), {}); }).find("input of size 0"), std::string::npos);
  EXPECT_NE(error_of([] { raw::adaptive_avg_pool2d(zeros({2, 3, 4, 4}), {0, 2}); }).find("(0, 2)"), std::string::npos);
  EXPECT_NE(error_of([] {
              raw::max_pool2d_grad(zeros({1, 1, 2, 2}), zeros({1, 1, 2, 2}, {DType::int64, Device::cpu()}),
                                   {1, 1, 4, 4}, {.kernel = {2, 2}, .stride = {2, 2}});
            }).find("expected int32"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              raw::max_pool2d_grad(zeros({1, 1, 2, 2}), zeros({1, 1, 2, 2}, {DType::int32, Device::cpu()}),
                                   {1, 1, 4, 4}, {.kernel = {3, 3}, .stride = {2, 2}});
            }).find("gradient"),
            std::string::npos);
}

}  // namespace
}  // namespace ddp
