#include "ddp/autograd/function.h"

#include <gtest/gtest.h>

#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "support/grad_check.h"

namespace ddp {
namespace {

using Numbers = std::vector<double>;
using Tensors = std::vector<Tensor>;

Tensor leaf(std::initializer_list<double> values) {
  Tensor x = tensor<double>(values);
  x.set_requires_grad();
  return x;
}

struct Square {
  static Tensors forward(FunctionContext& context, const Tensors& in) {
    EXPECT_FALSE(grad_mode_enabled());
    context.save_for_backward({in[0]});
    return {in[0] * in[0]};
  }
  static Tensors backward(FunctionContext& context, const Tensors& grads) {
    return {grads[0] * context.saved()[0] * 2.0};
  }
};

/// Product and sum, with a number kept beside.
struct Both {
  static Tensors forward(FunctionContext& context, const Tensors& in) {
    context.save_for_backward({in[0], in[1]});
    context.data = 1.0;
    return {in[0] * in[1], in[0] + in[1]};
  }
  static Tensors backward(FunctionContext& context, const Tensors& grads) {
    const double one = std::any_cast<double>(context.data);
    const Tensors saved = context.saved();
    Tensors result(2);
    for (std::size_t i = 0; i < 2; ++i) {
      if (!context.needs_input_grad(i)) continue;
      if (grads[0].defined()) result[i] = grads[0] * saved[1 - i] * one;
      if (grads[1].defined()) result[i] = result[i].defined() ? result[i] + grads[1] : grads[1];
    }
    return result;
  }
};

TEST(Function, FiniteDifferences) {
  test::check_gradients([](const Tensors& in) { return apply_function<Square>("square", {in[0]})[0]; }, {{Dims{3, 4}}});
  test::check_gradients(
      [](const Tensors& in) {
        const Tensors out = apply_function<Both>("both", in);
        return out[0] * 2.0 + out[1];
      },
      {{Dims{3, 4}}, {Dims{3, 4}}});
  test::check_gradients([](const Tensors& in) { return apply_function<Both>("both", in)[1]; },
                        {{Dims{2, 2}}, {Dims{2, 2}}});
  test::check_gradients([](const Tensors& in) { return apply_function<Both>("both", in)[0]; },
                        {{Dims{2, 2}}, {Dims{2, 2}, -1.0, 1.0, false}});
}

template <class F>
std::string error_of(const F& call) {
  try {
    call();
  } catch (const AutogradError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

Tensor with_gradients(const Tensors& in, const Tensors& gradients) {
  return sum(apply_function(
      "wrong", in, [](FunctionContext&, const Tensors& x) { return Tensors{x[0] * 1.0}; },
      [gradients](FunctionContext&, const Tensors&) { return gradients; })[0]);
}

TEST(Function, WrongCountSizeOrType) {
  Tensor x = leaf({1, 2});
  const Tensor good = tensor<double>({1, 2});
  std::string text = error_of([&] { with_gradients({x, x}, {good}).backward(); });
  EXPECT_NE(text.find("wrong: backward returned 1 gradients, but forward had 2 inputs"), std::string::npos) << text;
  text = error_of([&] { with_gradients({x}, {tensor<double>({1, 2, 3})}).backward(); });
  EXPECT_NE(text.find("wrong"), std::string::npos) << text;
  EXPECT_NE(text.find("[3]"), std::string::npos) << text;
  EXPECT_NE(text.find("[2]"), std::string::npos) << text;
  text = error_of([&] { with_gradients({x}, {tensor<float>({1, 2})}).backward(); });
  EXPECT_NE(text.find("float32"), std::string::npos) << text;
  EXPECT_FALSE(x.grad().defined());
}

TEST(Function, SavedTensorsAreChecked) {
  Tensor x = leaf({1, 2});
  Tensor scratch = x.detach() * 1.0;
  const Tensor y = sum(apply_function(
      "keeper", {x},
      [&](FunctionContext& context, const Tensors& in) {
        context.save_for_backward({scratch});
        return Tensors{in[0] * 1.0};
      },
      [](FunctionContext& context, const Tensors&) { return Tensors{context.saved()[0]}; })[0]);
  scratch.fill_(0);
  const std::string text = error_of([&] { y.backward(); });
  EXPECT_NE(text.find("keeper"), std::string::npos) << text;
  const Tensor z = sum(apply_function<Square>("square", {x})[0]);
  z.backward();
  EXPECT_NE(error_of([&] { z.backward(); }).find("second time"), std::string::npos);
}

TEST(Function, ReturnedInputGetsAHandleOfItsOwn) {
  Tensor x = leaf({1, 2});
  const auto pass = [](FunctionContext&, const Tensors& in) { return Tensors{in[0], in[0]}; };
  const auto add_up = [](FunctionContext&, const Tensors& g) { return Tensors{g[0] + g[1] * 10.0}; };
  const Tensors out = apply_function("pass", {x}, pass, add_up);
  EXPECT_FALSE(out[0].is_same(x));
  EXPECT_TRUE(x.is_leaf());
  sum(out[0] + out[1]).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Numbers{11, 11}));
}

TEST(Function, WholeNumberResultsAndOffGraph) {
  Tensor x = leaf({3, 9, 4});
  const auto forward = [](FunctionContext&, const Tensors& in) {
    const MaxValues found = max(in[0], 0);
    return Tensors{found.indices, found.values};
  };
  std::size_t count = 0;
  const auto backward = [&](FunctionContext&, const Tensors& g) {
    count = g.size();
    EXPECT_FALSE(g[0].defined());
    return Tensors{expand(g[1], {3})};
  };
  Tensors out = apply_function("top", {x}, forward, backward);
  EXPECT_FALSE(out[0].requires_grad());
  out[1].backward();
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(x.grad().to_vector<double>(), (Numbers{1, 1, 1}));
  const NoGradGuard no_grad;
  out = apply_function("top", {x}, forward, backward);
  EXPECT_FALSE(out[1].requires_grad());
}

}  // namespace
}  // namespace ddp
