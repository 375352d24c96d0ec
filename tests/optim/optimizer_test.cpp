#include "ddp/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/core/error.h"
#include "ddp/optim/adam.h"
#include "ddp/optim/sgd.h"
#include "support/expect_error.h"
#include "tensor/copy.h"
#include "tensor/tensor_impl.h"

namespace ddp::optim {
namespace {

using test::expect_error;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

Tensor parameter(const Doubles& values, DType dtype = DType::float64) {
  const Tensor made = tensor(values, {static_cast<std::int64_t>(values.size())});
  return to(made, dtype).set_requires_grad();
}

/// The parameter's values after each of the steps with these gradients.
std::vector<Doubles> run(Optimizer& optimizer, Tensor p, const std::vector<Doubles>& gradients) {
  std::vector<Doubles> result;
  for (const Doubles& gradient : gradients) {
    optimizer.zero_grad();
    p.set_grad(to(tensor(gradient, p.sizes()), p.dtype()));
    optimizer.step();
    result.push_back(p.to_vector<double>());
  }
  return result;
}

// Powers of two throughout, so that every number below is exact in float32 and float64.
const std::vector<Doubles> kGradients = {{8, -4}, {4, 0}, {-8, 16}};

TEST(SGD, Plain) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor p = parameter({1, 2}, dtype);
    SGD optimizer({p}, {.lr = 0.25});
    EXPECT_EQ(run(optimizer, p, kGradients), (std::vector<Doubles>{{-1, 3}, {-2, 3}, {0, -1}}));
    EXPECT_TRUE(optimizer.state()[0].tensors.empty());
    EXPECT_EQ(optimizer.state()[0].step, 3);
  }
}

TEST(SGD, MomentumTakesTheFirstGradientAsItIs) {
  const Tensor p = parameter({1, 2});
  SGD optimizer({p}, {.lr = 0.25, .momentum = 0.5});
  // v: {8,-4}; {8,-2}; {-4,15}
  EXPECT_EQ(run(optimizer, p, kGradients), (std::vector<Doubles>{{-1, 3}, {-3, 3.5}, {-2, -0.25}}));
  EXPECT_EQ(optimizer.state()[0].tensors[0].to_vector<double>(), (Doubles{-4, 15}));
  EXPECT_EQ(optimizer.state_names(), (std::vector<std::string>{"momentum_buffer"}));
}

TEST(SGD, DampeningSparesTheFirstStep) {
  const Tensor p = parameter({1, 2});
  SGD optimizer({p}, {.lr = 0.25, .momentum = 0.5, .dampening = 0.25});
  // v: {8,-4}; {4+3, -2+0} = {7,-2}; {3.5-6, -1+12} = {-2.5, 11}
  EXPECT_EQ(run(optimizer, p, kGradients), (std::vector<Doubles>{{-1, 3}, {-2.75, 3.5}, {-2.125, 0.75}}));
}

TEST(SGD, Nesterov) {
  const Tensor p = parameter({1, 2});
  SGD optimizer({p}, {.lr = 0.25, .momentum = 0.5, .nesterov = true});
  // v as with momentum; step g + 0.5 v: {12,-6}; {8,-1}; {-10, 23.5}
  EXPECT_EQ(run(optimizer, p, kGradients), (std::vector<Doubles>{{-2, 3.5}, {-4, 3.75}, {-1.5, -2.125}}));
}

TEST(SGD, WeightDecayIsPartOfTheGradient) {
  const Tensor p = parameter({1, 2});
  SGD optimizer({p}, {.lr = 0.25, .momentum = 0.5, .weight_decay = 0.5});
  // g: {8.5,-3} v same -> p {-1.125, 2.75}; g: {4-0.5625, 1.375} = {3.4375, 1.375}, v {7.6875, -0.125}
  // -> p {-3.046875, 2.78125}; g: {-9.5234375, 17.390625}, v {-5.6796875, 17.328125}
  EXPECT_EQ(run(optimizer, p, kGradients),
            (std::vector<Doubles>{{-1.125, 2.75}, {-3.046875, 2.78125}, {-1.626953125, -1.55078125}}));
}

TEST(SGD, LeavesUndefinedGradientsAlone) {
  const Tensor a = parameter({1});
  const Tensor b = parameter({5});
  SGD optimizer({a, b}, {.lr = 0.5, .momentum = 0.5, .weight_decay = 0.5});
  optimizer.step();
  EXPECT_EQ(a.to_vector<double>(), (Doubles{1}));
  run(optimizer, a, {{2}});
  EXPECT_EQ(b.to_vector<double>(), (Doubles{5}));
  EXPECT_EQ(optimizer.state()[1].step, 0);
  EXPECT_TRUE(optimizer.state()[1].tensors.empty());
  // b's first update is its first, though it is the optimiser's third step: g = 1 + 2.5, v = g.
  run(optimizer, b, {{1}});
  EXPECT_EQ(b.to_vector<double>(), (Doubles{3.25}));
}

// The word says, on the device, that the reduction which should have made the gradient failed.
TEST(SGD, LeavesAParameterWhoseGradientIsRefused) {
  Tensor refused = parameter({8, -4});
  Tensor taken = parameter({1, 2});
  SGD optimizer({refused, taken}, {.lr = 0.5, .momentum = 0.5});
  const Tensor word = zeros({1}, {DType::int32});
  for (const int bit : {1, 0}) {
    refused.set_grad(tensor<double>({2, 2}));
    taken.set_grad(tensor<double>({2, 2}));
    refused.grad().impl()->storage()->set_refusal(word.impl()->storage());
    Tensor(word).fill_(bit);
    optimizer.step();
    EXPECT_EQ(refused.to_vector<double>(), bit == 1 ? (Doubles{8, -4}) : (Doubles{7, -5}));
  }
  // The same update twice: -1, then -1.5 with the momentum.
  EXPECT_EQ(taken.to_vector<double>(), (Doubles{-1.5, -0.5}));
}

struct Recovery {
  std::vector<std::vector<float>> numbers;  // parameters, then their states
  std::vector<std::int64_t> steps;
};

/// Seven steps, those of `refused` with the word raised. `ask`: whether the optimiser is asked to make those at all.
template <class Make>
Recovery recover(const Make& make, const std::vector<int>& refused, bool ask, bool look_between) {
  const std::vector<Tensor> p = {parameter({1, -2, 0.5}, DType::float32), parameter({3, 4}, DType::float32),
                                 parameter({5}, DType::float32)};
  const std::unique_ptr<Optimizer> optimizer = make(p);
  const Tensor word = zeros({4}, {DType::int32});
  for (int step = 0; step < 7; ++step) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      Tensor parameter = p[i];
      parameter.zero_grad();
      if (i == 2 && step % 3 == 2) continue;  // not in use in every pass
      Tensor gradient = zeros(parameter.sizes());
      for (std::int64_t k = 0; k < gradient.numel(); ++k) {
        gradient.data_ptr<float>()[k] =
            std::sin(static_cast<float>(step * 10 + static_cast<int>(i) * 3) + static_cast<float>(k));
      }
      parameter.set_grad(gradient);
      // The second parameter belongs to somebody else, whose gradients are always good.
      if (i != 1) parameter.grad().impl()->storage()->set_refusal(word.impl()->storage());
    }
    const bool bad = std::find(refused.begin(), refused.end(), step) != refused.end();
    if (bad) {
      // As the device does: the host is not told.
      raw::fill_(word, 1);
      Tensor other = p[1];
      other.zero_grad();
      if (ask) optimizer->step();
      if (ask && look_between) static_cast<void>(optimizer->state());
      continue;
    }
    Tensor(word).zero_();
    optimizer->step();
  }
  Recovery result;
  for (const Tensor& tensor : p) result.numbers.push_back(tensor.to_vector<float>());
  for (const ParameterState& state : optimizer->state()) {
    result.steps.push_back(state.step);
    for (const Tensor& tensor : state.tensors) result.numbers.push_back(tensor.to_vector<float>());
  }
  return result;
}

TEST(Optimizer, ARefusedStepIsAsIfItHadNeverBeen) {
  using Parameters = std::vector<Tensor>;
  using Make = std::function<std::unique_ptr<Optimizer>(const Parameters&)>;
  const Make makes[] = {
      [](const Parameters& p) { return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1}); },
      [](const Parameters& p) {
        return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.25});
      },
      [](const Parameters& p) {
        return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
      },
      [](const Parameters& p) { return std::make_unique<Adam>(p, AdamOptions{.lr = 0.1, .weight_decay = 0.1}); },
      [](const Parameters& p) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 0.1}); }};
  for (const Make& make : makes) {
    for (const std::vector<int>& refused :
         {std::vector<int>{0}, {0, 1}, {3}, {3, 4, 5}, {0, 2, 4}, {6}, {0, 1, 2, 3, 4, 5, 6}}) {
      const Recovery without = recover(make, refused, false, false);
      for (const bool look_between : {false, true}) {
        const Recovery with = recover(make, refused, true, look_between);
        EXPECT_EQ(with.steps, without.steps);
        EXPECT_EQ(with.numbers, without.numbers);
      }
      EXPECT_EQ(without.steps[0], 7 - static_cast<std::int64_t>(refused.size()));
    }
  }
}

TEST(Optimizer, TakesAStateAfterARefusedStep) {
  Tensor p = parameter({1, 2});
  Adam optimizer({p});
  p.set_grad(tensor<double>({1, 1}));
  const Tensor word = ones({1}, {DType::int32});
  p.grad().impl()->storage()->set_refusal(word.impl()->storage());
  optimizer.step();
  optimizer.load_state({{5, {zeros({2}), zeros({2})}}});
  EXPECT_EQ(optimizer.state()[0].step, 5);  // not 4
  optimizer.step();
  EXPECT_EQ(optimizer.state()[0].step, 5);
  Tensor(word).zero_();
  optimizer.step();
  EXPECT_EQ(optimizer.state()[0].step, 6);
}

TEST(SGD, GroupsHaveTheirOwnOptions) {
  const Tensor a = parameter({1});
  const Tensor b = parameter({1});
  const Tensor c = parameter({1}, DType::float32);
  SGD optimizer({{{a}, {.lr = 0.5}}, {{b, c}, {.lr = 0.25, .weight_decay = 2}}});
  EXPECT_EQ(optimizer.num_groups(), 2U);
  EXPECT_EQ(optimizer.parameters().size(), 3U);
  for (Tensor p : {a, b, c}) p.set_grad(full({1}, 2, p.options()));
  optimizer.step();
  EXPECT_EQ(a.to_vector<double>(), (Doubles{0}));
  EXPECT_EQ(b.to_vector<double>(), (Doubles{0}));
  EXPECT_EQ(c.to_vector<double>(), (Doubles{0}));
  EXPECT_EQ(optimizer.learning_rate(1), 0.25);
  optimizer.set_learning_rate(1, 4);
  optimizer.step();
  EXPECT_EQ(a.to_vector<double>(), (Doubles{-1}));
  EXPECT_EQ(b.to_vector<double>(), (Doubles{-8}));
  expect_error<InvalidArgument>([&] { optimizer.set_learning_rate(1, -1); }, {"lr is -1"});
  expect_error<InvalidArgument>([&] { optimizer.set_learning_rate(2, 1); }, {"group 2 of 2"});
}

TEST(SGD, RefusesBadArguments) {
  const Tensor p = parameter({1});
  const auto make = [&p](const SGDOptions& options) { return [&p, options] { SGD({p}, options); }; };
  expect_error<InvalidArgument>(make({.lr = -0.5}), {"SGD", "lr is -0.5"});
  expect_error<InvalidArgument>(make({.momentum = -1}), {"momentum is -1"});
  expect_error<InvalidArgument>(make({.weight_decay = -1}), {"weight_decay is -1"});
  expect_error<InvalidArgument>(make({.nesterov = true}), {"nesterov", "momentum is 0"});
  expect_error<InvalidArgument>(make({.momentum = 0.5, .dampening = 0.5, .nesterov = true}), {"dampening 0.5"});
  expect_error<InvalidArgument>(make({.lr = std::numeric_limits<double>::quiet_NaN()}), {"lr is nan"});
  expect_error<InvalidArgument>([] { SGD(std::vector<Tensor>{}); }, {"no parameters"});
  expect_error<InvalidArgument>([&p] { SGD({p, p}); }, {"parameter 1 of group 0", "twice"});
  expect_error<InvalidArgument>([&p] { SGD({{{p}, {}}, {{p}, {}}}); }, {"parameter 0 of group 1", "twice"});
  expect_error<InvalidArgument>([] { SGD({Tensor()}); }, {"undefined"});
  expect_error<InvalidArgument>([] { SGD({zeros({1}, {.dtype = DType::int64})}); }, {"int64"});
  expect_error<InvalidArgument>([&p] { SGD({mul(p, 2.0)}); }, {"leaves"});
  std::vector<float> memory(8);
  expect_error<InvalidArgument>([&] { SGD({from_blob(memory.data(), {2, 2}, {}, {4, 1})}); }, {"gaps", "[4, 1]"});
  const Tensor q = to(parameter({1}).detach(), Device::cpu(1)).set_requires_grad();
  SGD mixed({p, q});
  expect_error<InvalidArgument>([&] { mixed.step(); }, {"parameter 1 of group 0", "cpu:1", "cpu:0"});
}

TEST(Optimizer, TakesAnyLayoutOfParameterAndGradient) {
  // The parameter is stored column by column; gradients come in both layouts.
  for (const bool same : {true, false}) {
    std::vector<double> memory = {1, 3, 5, 2, 4, 6};
    Tensor p = from_blob(memory.data(), {3, 2}, {.dtype = DType::float64}, {1, 3});
    p.set_requires_grad();
    std::vector<double> g = same ? Doubles{8, 16, 24, 32, 40, 48} : Doubles{8, 32, 16, 40, 24, 48};
    const Tensor gradient = from_blob(g.data(), {3, 2}, {.dtype = DType::float64}, same ? Dims{1, 3} : Dims{2, 1});
    p.set_grad(gradient);
    SGD optimizer({p}, {.lr = 0.125, .momentum = 0.5});
    optimizer.step();
    EXPECT_EQ(p.to_vector<double>(), (Doubles{0, -2, 1, -1, 2, 0}));
    EXPECT_EQ(optimizer.state()[0].tensors[0].to_vector<double>(), (Doubles{8, 32, 16, 40, 24, 48}));
    optimizer.step();
    EXPECT_EQ(p.to_vector<double>(), (Doubles{-1.5, -8, -2, -8.5, -2.5, -9}));
  }
}

TEST(Optimizer, NoticesThatGradientsAndParametersMove) {
  Tensor p = parameter({1, 2});
  SGD optimizer({p}, {.lr = 0.5, .momentum = 0.5});
  run(optimizer, p, {{2, 4}});
  // A gradient elsewhere in memory.
  p.zero_grad();
  const Tensor bucket = tensor(Doubles{0, 2, 4, 0}, {4});
  p.set_grad(slice(bucket, 0, 1, 3));
  optimizer.step();  // v = {3, 6}
  EXPECT_EQ(p.to_vector<double>(), (Doubles{-1.5, -3}));
}

TEST(Optimizer, TheStepIsAnInPlaceChange) {
  const Tensor p = parameter({2});
  SGD optimizer({p}, {.lr = 1});
  const Tensor y = sum(mul(p, p));
  Tensor(p).set_grad(ones({1}, p.options()));
  const std::uint32_t version = p.version();
  optimizer.step();
  EXPECT_GT(p.version(), version);
  EXPECT_THROW(y.backward(), AutogradError);
}

/// The textbook in double precision, one number.
class ReferenceAdam {
 public:
  ReferenceAdam(AdamOptions options, bool decoupled) : o_(options), decoupled_(decoupled) {}
  double step(double p, double g) {
    ++t_;
    if (decoupled_) {
      p -= o_.lr * o_.weight_decay * p;
    } else {
      g += o_.weight_decay * p;
    }
    m_ = o_.beta1 * m_ + (1 - o_.beta1) * g;
    v_ = o_.beta2 * v_ + (1 - o_.beta2) * g * g;
    const double m = m_ / (1 - std::pow(o_.beta1, t_));
    const double v = v_ / (1 - std::pow(o_.beta2, t_));
    return p - o_.lr * m / (std::sqrt(v) + o_.eps);
  }

 private:
  AdamOptions o_;
  bool decoupled_;
  int t_ = 0;
  double m_ = 0;
  double v_ = 0;
};

TEST(Adam, FollowsTheTextbook) {
  struct Case {
    AdamOptions options;
    bool decoupled;
  };
  const Case cases[] = {{{.lr = 0.1}, false},
                        {{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4, .weight_decay = 0.1}, false},
                        {{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4, .weight_decay = 0.1}, true}};
  for (const auto& [o, decoupled] : cases) {
    for (const DType dtype : {DType::float64, DType::float32}) {
      Tensor p = parameter({1.0, -2.0, 0.25}, dtype);
      std::unique_ptr<Optimizer> optimizer;
      if (decoupled) {
        optimizer = std::make_unique<AdamW>(std::vector<Tensor>{p},
                                            AdamWOptions{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay});
      } else {
        optimizer = std::make_unique<Adam>(std::vector<Tensor>{p}, o);
      }
      std::vector<ReferenceAdam> reference(3, ReferenceAdam(o, decoupled));
      Doubles expected = {1.0, -2.0, 0.25};
      for (int t = 1; t <= 20; ++t) {
        Doubles gradient(3);
        for (std::size_t i = 0; i < 3; ++i)
          gradient[i] = std::sin(static_cast<double>(t) + 2.0 * static_cast<double>(i));
        if (dtype == DType::float32) {
          for (double& g : gradient) g = static_cast<float>(g);
        }
        const Doubles got = run(*optimizer, p, {gradient})[0];
        for (std::size_t i = 0; i < 3; ++i) {
          expected[i] = reference[i].step(expected[i], gradient[i]);
          // Rounding of 20 steps of size lr; the order of operations is not fixed.
          EXPECT_NEAR(got[i], expected[i], dtype == DType::float64 ? 1e-13 : 5e-6);
        }
      }
    }
  }
}

TEST(Adam, DefaultsArePyTorchs) {
  const Tensor p = parameter({1});
  EXPECT_EQ(Adam({p}).learning_rate(0), 1e-3);
  EXPECT_EQ(AdamOptions().weight_decay, 0);
  EXPECT_EQ(AdamWOptions().weight_decay, 1e-2);
  EXPECT_EQ(Adam({p}).state_names(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  expect_error<InvalidArgument>([&p] { Adam({p}, {.beta1 = 1}); }, {"Adam", "beta1 is 1", "[0, 1)"});
  expect_error<InvalidArgument>([&p] { AdamW({p}, {.eps = -1}); }, {"AdamW", "eps is -1"});
  expect_error<InvalidArgument>([] { AdamW(std::vector<Tensor>{}); }, {"AdamW", "no parameters"});
}

TEST(OptimizerState, GoesOnWhereItWasSaved) {
  const std::vector<Doubles> first = {{1, -2}, {3, 0.5}};
  const std::vector<Doubles> then = {{-1, 1}, {0.25, 2}};
  for (const bool adam : {false, true}) {
    const auto make = [adam](const Tensor& p) -> std::unique_ptr<Optimizer> {
      if (adam) return std::make_unique<Adam>(std::vector<Tensor>{p}, AdamOptions{.lr = 0.1});
      return std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions{.lr = 0.1, .momentum = 0.9});
    };
    const Tensor p = parameter({1, 2});
    const auto whole = make(p);
    run(*whole, p, first);

    const Tensor q = parameter(p.to_vector<double>());
    const auto resumed = make(q);
    resumed->load_state(whole->state());
    EXPECT_EQ(run(*whole, p, then), run(*resumed, q, then));
    EXPECT_FALSE(whole->state()[0].tensors[0].shares_storage_with(resumed->state()[0].tensors[0]));
    expect_error<InvalidArgument>([&] { resumed->load_state({}); }, {"0 parameters", "there are 1"});
    expect_error<InvalidArgument>([&] { resumed->load_state({{1, {zeros({3})}}}); }, {"parameter 0", "[3]", "[2]"});
    expect_error<InvalidArgument>([&] { resumed->load_state({{-1, {}}}); }, {"step -1"});
    expect_error<InvalidArgument>([&] { resumed->load_state({{1, {zeros({2}), zeros({2}), zeros({2})}}}); },
                                  {"3 tensors"});
  }
}

std::vector<Tensor> with_gradients(const std::vector<Doubles>& gradients) {
  std::vector<Tensor> result;
  for (const Doubles& gradient : gradients) {
    result.push_back(parameter(Doubles(gradient.size(), 1), DType::float32));
    result.back().set_grad(to(tensor(gradient, result.back().sizes()), DType::float32));
  }
  return result;
}

TEST(ClipGradNorm, ScalesTheJointNorm) {
  const std::vector<Tensor> parameters = with_gradients({{6}, {0, 8}});
  const Tensor norm = clip_grad_norm(parameters, 2);
  EXPECT_EQ(norm.dtype(), DType::float64);
  EXPECT_EQ(norm.item<double>(), 10);
  EXPECT_NEAR(parameters[0].grad().item<float>(), 1.2, 1e-6);
  EXPECT_NEAR(parameters[1].grad().to_vector<float>()[1], 1.6, 1e-6);
}

TEST(ClipGradNorm, CountsAsAChangeInPlace) {
  const std::vector<Tensor> parameters = with_gradients({{6, 8}});
  Tensor other = parameter({1, 1}, DType::float32);
  const Tensor loss = sum(mul(parameters[0].grad(), other));
  clip_grad_norm(parameters, 1);
  expect_error<AutogradError>([&] { loss.backward(); }, {"changed in place"});
}

TEST(ClipGradNorm, LeavesSmallOnesAlone) {
  const std::vector<Tensor> parameters = with_gradients({{0.75}});
  EXPECT_EQ(clip_grad_norm(parameters, 1).item<double>(), 0.75);
  EXPECT_EQ(parameters[0].grad().item<float>(), 0.75F);
  EXPECT_EQ(clip_grad_norm({parameter({3})}, 1).item<double>(), 0);  // no gradient at all
  EXPECT_EQ(clip_grad_norm({}, 1).item<double>(), 0);
}

TEST(ClipGradNorm, InfinityShowsAndBadLimitsAreRefused) {
  const std::vector<Tensor> parameters = with_gradients({{std::numeric_limits<double>::infinity(), 1}});
  EXPECT_TRUE(std::isinf(clip_grad_norm(parameters, 1).item<double>()));
  EXPECT_TRUE(std::isnan(parameters[0].grad().to_vector<float>()[0]));
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    expect_error<InvalidArgument>([&] { clip_grad_norm(parameters, bad); }, {"max_norm", "above 0"});
  }
}

}  // namespace
}  // namespace ddp::optim
