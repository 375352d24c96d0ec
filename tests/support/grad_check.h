#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/accumulate_grad.h"
#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "support/layouts.h"
#include "support/poison.h"

/// Compares gradients with central finite differences in float64.
namespace ddp::test {

struct GradInput {
  Dims sizes;
  double low = -1.0;
  double high = 1.0;
  bool requires_grad = true;
};

struct GradCheck {
  /// The error of a central difference is eps^2 * f''' / 6 + 1e-16 * |f| / eps: under 1e-9 for the functions
  /// here. `tolerance` is relative to max(1, |gradient|).
  double eps = 1e-6;
  double tolerance = 1e-6;
  /// Results for other strides of the inputs may differ by rounding only.
  double layout_tolerance = 1e-12;
};

using GradFunction = std::function<Tensor(const std::vector<Tensor>&)>;

/// Who takes the gradient of an input.
enum class Taker : std::uint8_t {
  leaf,         // own memory
  inner,        // a node between the leaf and the function
  destination,  // the leaf, into memory that the caller made, column-major inside a buffer full of NaN
};

inline const char* name_of(Taker taker) {
  return taker == Taker::leaf ? "leaf" : taker == Taker::inner ? "inner" : "destination";
}

inline bool near(double a, double b, double tolerance) {
  return std::abs(a - b) <= tolerance * std::max({1.0, std::abs(a), std::abs(b)});
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(near(got[i], want[i], tolerance))
        << what << ", element " << i << ": " << got[i] << ", expected " << want[i];
  }
}

/// The gradient handed to backward: random numbers row-major or column-major, or one number for all (stride 0).
enum class Seed : std::uint8_t { row_major, transposed, expanded };

class GradChecker {
 public:
  GradChecker(GradFunction function, std::vector<GradInput> inputs, GradCheck options)
      : function_(std::move(function)), inputs_(std::move(inputs)), options_(options) {
    std::uint64_t seed = 11;
    for (const GradInput& input : inputs_) {
      values_.push_back(random_values(input.sizes.product(), input.low, input.high, seed++));
    }
  }

  void run(const std::vector<Layout>& layouts) {
    const Tensor y = evaluate(Layout::row_major);
    result_ = read(y);
    result_sizes_ = y.sizes();
    for (const double value : result_) ASSERT_TRUE(std::isfinite(value)) << "a result is not finite";
    const std::vector<double> random = random_values(y.numel(), -1.0, 1.0, 5);
    const std::vector<double> constant(static_cast<std::size_t>(y.numel()), 0.75);
    const auto numeric_random = differences(random);
    const auto numeric_constant = differences(constant);
    for (const Layout layout : layouts) {
      expect_near(read(evaluate(layout)), result_, options_.layout_tolerance,
                  std::string("result for inputs ") + name_of(layout));
      for (const Taker taker : {Taker::leaf, Taker::inner, Taker::destination}) {
        for (const Seed seed : {Seed::row_major, Seed::transposed, Seed::expanded}) {
          SCOPED_TRACE(std::string("inputs ") + name_of(layout) + ", taker " + name_of(taker) + ", gradient " +
                       std::to_string(static_cast<int>(seed)));
          backward(layout, taker, seed, seed == Seed::expanded ? constant : random,
                   seed == Seed::expanded ? numeric_constant : numeric_random);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }

 private:
  Tensor call(const std::vector<Tensor>& inputs) {
    poison_pool();
    return function_(inputs);
  }

  Tensor evaluate(Layout layout) {
    const NoGradGuard no_grad;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      inputs.push_back(make_layout(inputs_[i].sizes, layout, values_[i]));
    }
    return call(inputs);
  }

  /// d(sum of seed * result) / d(input) by central differences.
  std::vector<std::vector<double>> differences(const std::vector<double>& seed) {
    const NoGradGuard no_grad;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      inputs.push_back(make_layout(inputs_[i].sizes, Layout::row_major, values_[i]));
    }
    // Differences are summed element by element, so that large terms that do not change cancel first.
    const auto results = [&] { return read(function_(inputs)); };
    std::vector<std::vector<double>> found(inputs_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      found[i].assign(values_[i].size(), 0.0);
      if (!inputs_[i].requires_grad) continue;
      auto* data = static_cast<double*>(inputs[i].data());
      for (std::size_t j = 0; j < values_[i].size(); ++j) {
        data[j] = values_[i][j] + options_.eps;
        const std::vector<double> above = results();
        data[j] = values_[i][j] - options_.eps;
        const std::vector<double> below = results();
        data[j] = values_[i][j];
        double sum = 0;
        for (std::size_t k = 0; k < above.size(); ++k) sum += seed[k] * (above[k] - below[k]);
        found[i][j] = sum / (2 * options_.eps);
      }
    }
    return found;
  }

  Tensor seed_tensor(Seed seed, const std::vector<double>& values) const {
    if (seed == Seed::expanded) {
      const Tensor one = full({1}, 0.75, {DType::float64, Device::cpu()});
      return make_view(one, result_sizes_, Dims::filled(result_sizes_.size(), 0), 0);
    }
    return make_layout(result_sizes_, seed == Seed::row_major ? Layout::row_major : Layout::transposed, values);
  }

  void backward(Layout layout, Taker taker, Seed seed, const std::vector<double>& seed_values,
                const std::vector<std::vector<double>>& expected) {
    std::vector<Tensor> leaves;
    std::vector<Tensor> places;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      Tensor leaf = make_layout(inputs_[i].sizes, layout, values_[i]);
      places.emplace_back();
      if (inputs_[i].requires_grad) {
        leaf.set_requires_grad();
        if (taker == Taker::destination) {
          places.back() = make_layout(inputs_[i].sizes, Layout::transposed);
          autograd::accumulator_of(leaf)->set_destination(places.back());
        }
      }
      leaves.push_back(leaf);
      inputs.push_back(taker == Taker::inner ? leaf + 0.0 : leaf);
    }
    const Tensor y = call(inputs);
    ASSERT_TRUE(y.requires_grad());
    ASSERT_EQ(y.sizes(), result_sizes_);
    const Tensor gradient = seed_tensor(seed, seed_values);
    // Once for the gradient, twice for the sum of two, then again after clearing.
    for (const int factor : {1, 2, 1}) {
      if (factor == 1) {
        for (Tensor& leaf : leaves) leaf.zero_grad();
      }
      poison_pool();
      y.backward(gradient, true);
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        if (!inputs_[i].requires_grad) {
          ASSERT_FALSE(leaves[i].grad().defined());
          continue;
        }
        const Tensor found = leaves[i].grad();
        ASSERT_TRUE(found.defined()) << "input " << i;
        ASSERT_EQ(found.sizes(), inputs_[i].sizes) << "input " << i;
        if (taker == Taker::destination) {
          ASSERT_TRUE(found.is_same(places[i]));
        }
        std::vector<double> want = expected[i];
        for (double& value : want) value *= factor;
        expect_near(read(found), want, options_.tolerance,
                    "gradient of input " + std::to_string(i) + ", times " + std::to_string(factor));
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    ASSERT_EQ(read(gradient), seed_values) << "backward changed the gradient it was given";
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      ASSERT_EQ(read(leaves[i]), values_[i]) << "an input was changed";
    }
  }

  GradFunction function_;
  std::vector<GradInput> inputs_;
  GradCheck options_;
  std::vector<std::vector<double>> values_;
  std::vector<double> result_;
  Dims result_sizes_;
};

/// The inputs with one dimension of each (the first or the last that is longer than 1) made 1.
inline std::vector<GradInput> narrowed(std::vector<GradInput> inputs, bool first) {
  for (GradInput& input : inputs) {
    const std::size_t rank = input.sizes.size();
    for (std::size_t i = 0; i < rank; ++i) {
      std::int64_t& size = input.sizes[first ? i : rank - 1 - i];
      if (size <= 1) continue;
      size = 1;
      break;
    }
  }
  return inputs;
}

/// Checks `function` on random float64 inputs: row-major, column-major, sliced, and broadcast (stride 0) along the
/// first or the last dimension; gradients taken by leaves, by inner nodes and by memory made by the caller; handed in
/// row-major, column-major and broadcast; added up over two backwards; with all free memory filled with NaN before.
inline void check_gradients(const GradFunction& function, const std::vector<GradInput>& inputs,
                            GradCheck options = {}) {
  GradChecker(function, inputs, options).run({Layout::row_major, Layout::transposed, Layout::sliced});
  for (const bool first : {true, false}) {
    if (::testing::Test::HasFatalFailure()) return;
    SCOPED_TRACE(first ? "broadcast along the first dimension" : "broadcast along the last dimension");
    const auto on_broadcast = [&](const std::vector<Tensor>& narrow) {
      std::vector<Tensor> wide;
      for (std::size_t i = 0; i < narrow.size(); ++i) {
        wide.push_back(narrow[i].sizes() == inputs[i].sizes ? narrow[i] : expand(narrow[i], inputs[i].sizes));
      }
      return function(wide);
    };
    GradChecker(on_broadcast, narrowed(inputs, first), options).run({Layout::row_major});
  }
}

}  // namespace ddp::test

namespace ddp {
inline void PrintTo(const Dims& dims, std::ostream* out) { *out << to_string(dims); }
}  // namespace ddp
