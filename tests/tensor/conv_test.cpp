#include "tensor/conv.h"

#include <gtest/gtest.h>

#include "dense_reference.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

struct Case {
  Dims x, weight;
  raw::ConvParams params;
};

std::int64_t out_size(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                      std::int64_t dilation) {
  return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

Dims out_sizes(const Case& c) {
  const auto& p = c.params;
  return {c.x[0], c.weight[0], out_size(c.x[2], c.weight[2], p.stride.h, p.padding.h, p.dilation.h),
          out_size(c.x[3], c.weight[3], p.stride.w, p.padding.w, p.dilation.w)};
}

// Calls f(index of y, index of x, index of weight) for every product of the convolution.
template <class F>
void for_products(const Case& c, F&& f) {
  const auto& [stride, padding, dilation, groups] = c.params;
  const Dims y = out_sizes(c);
  const std::int64_t kg = c.weight[0] / groups;
  for (std::int64_t n = 0; n < y[0]; ++n) {
    for (std::int64_t k = 0; k < y[1]; ++k) {
      for (std::int64_t p = 0; p < y[2]; ++p) {
        for (std::int64_t q = 0; q < y[3]; ++q) {
          for (std::int64_t cc = 0; cc < c.weight[1]; ++cc) {
            for (std::int64_t r = 0; r < c.weight[2]; ++r) {
              for (std::int64_t s = 0; s < c.weight[3]; ++s) {
                const std::int64_t i = p * stride.h - padding.h + r * dilation.h;
                const std::int64_t j = q * stride.w - padding.w + s * dilation.w;
                if (i < 0 || j < 0 || i >= c.x[2] || j >= c.x[3]) continue;
                const std::int64_t channel = k / kg * c.weight[1] + cc;
                f(static_cast<std::size_t>(((n * y[1] + k) * y[2] + p) * y[3] + q),
                  static_cast<std::size_t>(((n * c.x[1] + channel) * c.x[2] + i) * c.x[3] + j),
                  static_cast<std::size_t>(((k * c.weight[1] + cc) * c.weight[2] + r) * c.weight[3] + s));
              }
            }
          }
        }
      }
    }
  }
}

std::vector<Case> cases() {
  return {
      {{2, 1, 6, 7}, {3, 1, 3, 3}, {}},
      {{3, 4, 12, 12}, {20, 4, 3, 3}, {}},
      {{2, 3, 9, 8}, {5, 3, 3, 3}, {.padding = {1, 1}}},
      {{2, 3, 9, 8}, {5, 3, 3, 3}, {.padding = {2, 2}}},
      {{1, 2, 5, 5}, {4, 2, 1, 1}, {.padding = {1, 2}}},  // more padding than kernel
      {{2, 17, 5, 6}, {33, 17, 1, 1}, {}},
      {{2, 3, 11, 10}, {4, 3, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{2, 3, 11, 10}, {4, 3, 2, 3}, {.stride = {3, 2}, .padding = {0, 1}}},
      {{2, 3, 11, 12}, {4, 3, 3, 2}, {.padding = {2, 1}, .dilation = {2, 3}}},
      {{2, 4, 11, 12}, {6, 2, 3, 3}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2}},
      {{2, 6, 7, 7}, {6, 1, 3, 3}, {.padding = {1, 1}, .groups = 6}},
      {{2, 6, 7, 7}, {12, 1, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 6}},
      {{1, 2, 3, 3}, {2, 2, 3, 3}, {}},  // one output element
      {{1, 2, 8, 1}, {2, 2, 5, 1}, {.padding = {2, 0}}},
      {{0, 2, 5, 5}, {3, 2, 3, 3}, {}},  // no images
      {{10, 2, 6, 40}, {3, 2, 3, 5}, {.padding = {1, 2}}},
  };
}

TEST(Conv, ForwardInEveryLayoutAndDtype) {
  std::uint64_t seed = 1;
  for (const DType dtype : kDense) {
    for (const Case& c : cases()) {
      const Tensor x = whole_numbers(c.x, dtype, ++seed);
      const Tensor weight = whole_numbers(c.weight, dtype, ++seed);
      const Tensor bias = whole_numbers({c.weight[0]}, dtype, ++seed);
      const auto xv = x.to_vector<double>();
      const auto wv = weight.to_vector<double>();
      const auto bv = bias.to_vector<double>();
      const Dims sizes = out_sizes(c);
      std::vector<double> plain(static_cast<std::size_t>(sizes.product()));
      for_products(c, [&](std::size_t y, std::size_t i, std::size_t w) { plain[y] += xv[i] * wv[w]; });
      auto biased = plain;
      const auto area = static_cast<std::size_t>(sizes[2] * sizes[3]);
      for (std::size_t i = 0; i < biased.size(); ++i) biased[i] += bv[i / area % bv.size()];
      for (const Layout layout : kLayouts) {
        poison();
        const Tensor y = raw::conv2d(lay_out(x, layout), lay_out(weight, layout), {}, c.params);
        EXPECT_EQ(y.sizes(), sizes);
        EXPECT_EQ(y.to_vector<double>(), rounded(plain, dtype)) << to_string(c.x) << to_string(c.weight);
        EXPECT_EQ(raw::conv2d(x, weight, lay_out(bias, layout), c.params).to_vector<double>(), rounded(biased, dtype));
      }
    }
  }
}

TEST(Conv, GradientsInEveryLayoutAndDtype) {
  std::uint64_t seed = 1000;
  for (const DType dtype : kDense) {
    for (const Case& c : cases()) {
      const Tensor x = whole_numbers(c.x, dtype, ++seed);
      const Tensor weight = whole_numbers(c.weight, dtype, ++seed);
      const Tensor grad = whole_numbers(out_sizes(c), dtype, ++seed);
      const Tensor start = whole_numbers(c.weight, dtype, ++seed);
      const auto xv = x.to_vector<double>();
      const auto wv = weight.to_vector<double>();
      const auto gv = grad.to_vector<double>();
      std::vector<double> x_grad(xv.size());
      std::vector<double> w_grad(wv.size());
      for_products(c, [&](std::size_t y, std::size_t i, std::size_t w) {
        x_grad[i] += gv[y] * wv[w];
        w_grad[w] += gv[y] * xv[i];
      });
      auto w_sum = w_grad;
      const auto before = start.to_vector<double>();
      for (std::size_t i = 0; i < w_sum.size(); ++i) w_sum[i] += before[i];
      for (const Layout layout : kLayouts) {
        poison();
        const Tensor g = lay_out(grad, layout);
        EXPECT_EQ(raw::conv2d_input_grad(g, lay_out(weight, layout), c.x, c.params).to_vector<double>(),
                  rounded(x_grad, dtype))
            << to_string(c.x) << to_string(c.weight);
        EXPECT_EQ(raw::conv2d_weight_grad(g, lay_out(x, layout), c.weight, c.params).to_vector<double>(),
                  rounded(w_grad, dtype))
            << to_string(c.x) << to_string(c.weight);
        const Tensor into = lay_out(full(c.weight, std::nan(""), {dtype, Device::cpu()}), layout);
        EXPECT_TRUE(raw::conv2d_weight_grad(g, x, c.weight, c.params, into).is_same(into));
        EXPECT_EQ(into.to_vector<double>(), rounded(w_grad, dtype));
        const Tensor added = lay_out(raw::clone(start), layout);
        raw::conv2d_weight_grad(g, x, c.weight, c.params, added, true);
        EXPECT_EQ(added.to_vector<double>(), rounded(w_sum, dtype));
      }
    }
  }
}

TEST(Conv, BiasGradient) {
  for (const DType dtype : kDense) {
    for (const Dims& sizes : {Dims{3, 5, 4, 7}, Dims{2, 3, 9, 11}, Dims{0, 3, 2, 2}}) {
      const Tensor grad = whole_numbers(sizes, dtype, 1);
      const auto gv = grad.to_vector<double>();
      const auto channels = static_cast<std::size_t>(sizes[1]);
      std::vector<double> expected(channels);
      for (std::size_t i = 0; i < gv.size(); ++i) {
        expected[i / static_cast<std::size_t>(sizes[2] * sizes[3]) % channels] += gv[i];
      }
      for (const Layout layout : kLayouts) {
        poison();
        EXPECT_EQ(raw::conv2d_bias_grad(lay_out(grad, layout)).to_vector<double>(), rounded(expected, dtype));
        const Tensor out = lay_out(full({sizes[1]}, 2, {dtype, Device::cpu()}), layout);
        raw::conv2d_bias_grad(grad, out, true);
        auto sum = expected;
        for (double& value : sum) value += 2;
        EXPECT_EQ(out.to_vector<double>(), rounded(sum, dtype));
      }
    }
  }
}

TEST(Conv, SameBitsForAnyNumberOfThreads) {
  for (const Case& c : {Case{{21, 8, 14, 14}, {40, 8, 3, 3}, {.padding = {1, 1}}},
                        Case{{9, 8, 14, 14}, {40, 4, 3, 3}, {.stride = {2, 2}, .groups = 2}}}) {
    const Tensor x = random(c.x, DType::float32, 1);
    const Tensor weight = random(c.weight, DType::float32, 2);
    const Tensor grad = random(out_sizes(c), DType::float32, 3);
    const auto results = with_thread_counts([&] {
      auto all = raw::conv2d(x, weight, {}, c.params).to_vector<double>();
      for (const Tensor& t : {raw::conv2d_input_grad(grad, weight, c.x, c.params),
                              raw::conv2d_weight_grad(grad, x, c.weight, c.params), raw::conv2d_bias_grad(grad)}) {
        const auto values = t.to_vector<double>();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    });
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(Conv, WrongArgumentsAreNamed) {
  const auto error = [](const Dims& x, const Dims& weight, const raw::ConvParams& params) {
    return error_of([&] { raw::conv2d(zeros(x), zeros(weight), {}, params); });
  };
  EXPECT_NE(error({2, 3, 4}, {1, 3, 3, 3}, {}).find("expected [N, C, H, W]"), std::string::npos);
  EXPECT_NE(error({2, 3, 4, 4}, {1, 2, 3, 3}, {}).find("do not fit"), std::string::npos);
  EXPECT_NE(error({2, 4, 4, 4}, {3, 2, 3, 3}, {.groups = 2}).find("groups must divide K"), std::string::npos);
  EXPECT_NE(error({2, 3, 2, 4}, {1, 3, 3, 3}, {}).find("a kernel of size 3"), std::string::npos);
  EXPECT_NE(error({2, 3, 4, 4}, {1, 3, 3, 3}, {.stride = {0, 1}}).find("stride (0, 1)"), std::string::npos);
  EXPECT_NE(error({2, 3, 4, 4}, {1, 3, 3, 3}, {.padding = {0, -1}}).find("padding (0, -1)"), std::string::npos);
  EXPECT_NE(error({2, 3, 4, 4}, {1, 3, 3, 3}, {.dilation = {1, 0}}).find("dilation (1, 0)"), std::string::npos);
  EXPECT_NE(error({2, 3, 4, 4}, {1, 3, 3, 3}, {.groups = 0}).find("groups 0"), std::string::npos);
  EXPECT_NE(error_of([] { raw::conv2d(zeros({1, 1, 3, 3}), zeros({2, 1, 3, 3}), zeros({3}), {}); }).find("bias"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              raw::conv2d_input_grad(zeros({1, 2, 2, 1}), zeros({2, 1, 3, 3}), {1, 1, 3, 3}, {});
            }).find("expected [1, 2, 1, 1]"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              raw::conv2d_weight_grad(zeros({1, 2, 2, 1}), zeros({1, 1, 3, 3}), {2, 1, 3, 3}, {});
            }).find("expected [1, 2, 1, 1]"),
            std::string::npos);
}

}  // namespace
}  // namespace ddp
