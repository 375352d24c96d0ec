#include "ddp/nn/module.h"

#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/autograd/hooks.h"
#include "ddp/core/error.h"
#include "ddp/optim/sgd.h"
#include "support/expect_error.h"

namespace ddp::nn {
namespace {

using test::expect_error;

std::vector<std::string> names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> result;
  for (const auto& entry : tensors) result.push_back(entry.first);
  return result;
}

/// y = x * scale, with a counter as buffer.
class Scale : public UnaryModule {
 public:
  explicit Scale(double value) {
    scale = register_parameter("scale", full({2}, value));
    none = register_parameter("none", Tensor());
    calls = register_buffer("calls", zeros({1}, {.dtype = DType::int64}));
  }
  Tensor forward(const Tensor& x) override { return mul(x, scale); }
  Tensor scale;
  Tensor none;
  Tensor calls;

  using Module::register_buffer;
  using Module::register_module;
  using Module::register_parameter;
};

class Root : public Module {
 public:
  Root() {
    first = register_module("first", std::make_shared<Scale>(1.5));
    list =
        register_module("list", std::make_shared<Sequential>(std::make_shared<Scale>(2), std::make_shared<Scale>(3)));
    own = register_parameter("own", full({3, 1}, 4));
    frozen = register_parameter("frozen", ones({1}), false);
  }
  std::shared_ptr<Scale> first;
  std::shared_ptr<Sequential> list;
  Tensor own;
  Tensor frozen;
};

TEST(Module, NamesAreFullPathsInOrderOfRegistration) {
  const Root root;
  EXPECT_EQ(names(root.named_parameters()),
            (std::vector<std::string>{"own", "frozen", "first.scale", "list.0.scale", "list.1.scale"}));
  EXPECT_EQ(names(root.named_buffers()), (std::vector<std::string>{"first.calls", "list.0.calls", "list.1.calls"}));
  EXPECT_EQ(names(root.state_dict()),
            (std::vector<std::string>{"own", "frozen", "first.scale", "first.calls", "list.0.scale", "list.0.calls",
                                      "list.1.scale", "list.1.calls"}));
  EXPECT_TRUE(root.own.requires_grad());
  EXPECT_FALSE(root.frozen.requires_grad());
  EXPECT_FALSE(root.first->none.defined());
  EXPECT_EQ(root.named_children().size(), 2U);
}

TEST(Module, RefusesBadRegistrations) {
  const auto scale = std::make_shared<Scale>(1);
  for (const char* name : {"scale", "calls"}) {
    expect_error<InvalidArgument>([&] { scale->register_parameter(name, zeros({1})); }, {name, "registered already"});
    expect_error<InvalidArgument>([&] { scale->register_buffer(name, zeros({1})); }, {name});
    expect_error<InvalidArgument>([&] { scale->register_module(name, std::make_shared<Scale>(1)); }, {name});
  }
  expect_error<InvalidArgument>([&] { scale->register_parameter("", zeros({1})); }, {"needs a name"});
  expect_error<InvalidArgument>([&] { scale->register_parameter("a.b", zeros({1})); }, {"a.b", "dot"});
  expect_error<InvalidArgument>([&] { scale->register_module("null", std::shared_ptr<Scale>()); }, {"null"});
  expect_error<InvalidArgument>([&] { scale->register_module("self", scale); }, {"self", "contains"});
  const auto outer = std::make_shared<Scale>(1);
  outer->register_module("inner", scale);
  expect_error<InvalidArgument>([&] { scale->register_module("loop", outer); }, {"loop", "contains"});
  expect_error<InvalidArgument>([&] { scale->register_parameter("result", add(outer->scale, 1.0)); }, {"result"});
}

TEST(Module, ModeReachesAllParts) {
  Root root;
  EXPECT_TRUE(root.first->is_training());
  root.eval();
  EXPECT_FALSE(root.is_training());
  EXPECT_FALSE(root.list->named_children()[1].second->is_training());
  root.train();
  EXPECT_TRUE(root.list->named_children()[1].second->is_training());
}

TEST(Sequential, RunsItsModulesInOrder) {
  Sequential two(std::make_shared<Scale>(2), std::make_shared<Scale>(-5));
  EXPECT_EQ(two.size(), 2U);
  EXPECT_EQ(two(tensor<float>({1, 3})).to_vector<float>(), (std::vector<float>{-10, -30}));
  expect_error<InvalidArgument>([&] { two.push_back(nullptr); }, {"null"});
}

/// One weight under two names: y = w * (w * x).
class Tied : public Module {
 public:
  explicit Tied(double value) {
    struct Part : Module {
      explicit Part(const Tensor& w) { register_parameter("w", w); }
    };
    w = full({1}, value);
    register_module("emb", std::make_shared<Part>(w));
    register_module("head", std::make_shared<Part>(w));
  }
  Tensor forward(const Tensor& x) { return mul(w, mul(w, x)); }
  Tensor w;
};

float value_of(const Module& module, const std::string& name) {
  for (const auto& [key, tensor] : module.state_dict()) {
    if (key == name) return tensor.to_vector<float>().at(0);
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

TEST(TiedParameter, CountsAndStepsOnce) {
  Tied model(2.5);
  EXPECT_EQ(names(model.named_parameters()), (std::vector<std::string>{"emb.w"}));
  EXPECT_EQ(model.parameters().size(), 1U);
  optim::SGD optimizer(model.parameters(), {.lr = 0.25});
  model.forward(tensor<float>({2})).backward();
  EXPECT_EQ(model.w.grad().to_vector<float>(), (std::vector<float>{10}));  // 2 * w * x
  optimizer.step();
  EXPECT_EQ(value_of(model, "emb.w"), 0.0F);
  EXPECT_EQ(value_of(model, "head.w"), 0.0F);
  optimizer.zero_grad();
  model.forward(tensor<float>({0})).backward();
  optimizer.step();
  EXPECT_EQ(value_of(model, "head.w"), 0.0F);
}

// With few and with many: repeats are found in two ways.
TEST(TiedParameter, ParametersAreThoseWithNames) {
  for (const int parts : {3, 40}) {
    struct Part : Module {
      Part(const Tensor& own, const Tensor& shared) {
        register_parameter("own", own);
        register_parameter("shared", shared);
        register_parameter("again", shared);
      }
    };
    struct Root : Module {
      using Module::register_module;
    } all;
    const Tensor shared = full({1}, 1);
    for (int i = 0; i < parts; ++i) {
      all.register_module(std::to_string(i), std::make_shared<Part>(full({1}, i), shared));
    }
    const std::vector<NamedTensor> named = all.named_parameters();
    const std::vector<Tensor> plain = all.parameters();
    ASSERT_EQ(plain.size(), static_cast<std::size_t>(parts) + 1);
    ASSERT_EQ(named.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].is_same(named[i].second)) << i;
    for (Tensor tensor : plain) tensor.set_grad(full({1}, 3));
    all.zero_grad();
    for (const Tensor& tensor : plain) EXPECT_FALSE(tensor.grad().defined());
  }
}

TEST(TiedParameter, StaysOneThroughMovesAndLoads) {
  Tied model(1.5);
  model.to(DType::float64);
  model.to(Device::cpu(2));
  StateDict state = model.state_dict();
  ASSERT_EQ(state.size(), 2U);
  EXPECT_TRUE(state[0].second.is_same(state[1].second));
  EXPECT_TRUE(state[0].second.is_same(model.w));
  EXPECT_EQ(model.w.dtype(), DType::float64);
  EXPECT_EQ(model.w.device(), Device::cpu(2));

  Tied other(7);
  other.load_state_dict(state);
  EXPECT_EQ(other.w.dtype(), DType::float32);
  EXPECT_EQ(value_of(other, "emb.w"), 1.5F);
  EXPECT_EQ(other.parameters().size(), 1U);
  // A file that keeps a shared tensor once, under either name.
  for (const std::size_t kept : {std::size_t{0}, std::size_t{1}}) {
    Tied again(7);
    again.load_state_dict({state[kept]});
    EXPECT_EQ(value_of(again, "emb.w"), 1.5F);
    EXPECT_EQ(value_of(again, "head.w"), 1.5F);
  }
}

TEST(ModuleTo, KeepsHandlesGradientsAndFlags) {
  Root root;
  const Tensor handle = root.own;
  sum(mul(root.own, 3.0)).backward();
  root.to(DType::float64);
  EXPECT_TRUE(handle.is_same(root.own));
  EXPECT_EQ(handle.dtype(), DType::float64);
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_TRUE(handle.is_leaf());
  EXPECT_FALSE(root.frozen.requires_grad());
  EXPECT_EQ(handle.to_vector<double>(), (std::vector<double>{4, 4, 4}));
  ASSERT_TRUE(handle.grad().defined());
  EXPECT_EQ(handle.grad().dtype(), DType::float64);
  EXPECT_EQ(handle.grad().to_vector<double>(), (std::vector<double>{3, 3, 3}));
  EXPECT_FALSE(root.first->scale.grad().defined());
  // Integers stay integers.
  EXPECT_EQ(root.first->calls.dtype(), DType::int64);

  root.to(Device::cpu(1));
  EXPECT_EQ(handle.device(), Device::cpu(1));
  EXPECT_EQ(handle.grad().device(), Device::cpu(1));
  EXPECT_EQ(root.first->calls.device(), Device::cpu(1));
  // Backward after the move adds to the moved gradient.
  sum(mul(root.own, 0.5)).backward();
  EXPECT_EQ(handle.grad().to_vector<double>(), (std::vector<double>{3.5, 3.5, 3.5}));
  expect_error<InvalidArgument>([&root] { root.to(DType::int64); }, {"int64"});
}

TEST(ModuleTo, LeavesAloneWhatIsInPlace) {
  Root root;
  const void* before = root.own.data();
  int calls = 0;
  register_gradient_hook(root.own, [&calls](const Tensor&) { ++calls; });
  root.to(DType::float32);
  root.to(Device::cpu());
  EXPECT_EQ(root.own.data(), before);
  sum(root.own).backward();
  EXPECT_EQ(calls, 1);
  // A real move would lose the hook, and is refused before anything has moved.
  expect_error<InvalidArgument>([&root] { root.to(DType::float64); }, {"'own'", "hooks"});
  EXPECT_EQ(root.first->scale.dtype(), DType::float32);
}

TEST(ModuleTo, TheOptimiserFollows) {
  const auto train = [](bool move) {
    Scale model(4);
    optim::SGD optimizer(model.parameters(), {.lr = 0.5, .momentum = 0.5});
    for (int i = 0; i < 3; ++i) {
      if (move && i == 1) model.to(DType::float64);
      if (move && i == 2) model.to(Device::cpu(1));
      optimizer.zero_grad();
      sum(mul(model.scale, 2.0)).backward();
      optimizer.step();
    }
    EXPECT_EQ(optimizer.state()[0].tensors[0].options().device, model.scale.device());
    return model.scale.to_vector<double>();
  };
  EXPECT_EQ(train(false), (std::vector<double>{-0.25, -0.25}));  // v: 2, 3, 3.5
  EXPECT_EQ(train(true), train(false));
}

TEST(LoadStateDict, CopiesNumbersIntoTheSameHandles) {
  Root from;
  Root to;
  {
    const NoGradGuard no_grad;
    from.own.copy_(tensor(std::vector<float>{7, 8, 9}, {3, 1}));
    from.first->calls.fill_(41);
  }
  const Tensor handle = to.own;
  to.load_state_dict(from.state_dict());
  EXPECT_EQ(handle.to_vector<float>(), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(to.first->calls.to_vector<std::int64_t>(), (std::vector<std::int64_t>{41}));
  EXPECT_FALSE(to.own.shares_storage_with(from.own));
  to.load_state_dict(to.state_dict());
  EXPECT_EQ(handle.to_vector<float>(), (std::vector<float>{7, 8, 9}));
}

TEST(LoadStateDict, ListsEverythingThatIsWrongAndChangesNothing) {
  Root root;
  const StateDict good = root.state_dict();
  StateDict state;
  for (const auto& [name, tensor] : good) {
    if (name == "frozen" || name == "list.1.calls") continue;
    state.emplace_back(name, name == "own" ? zeros({3, 2}) : full(tensor.sizes(), 9, tensor.options()));
  }
  state.emplace_back("extra", zeros({1}));
  state.emplace_back("list.2.scale", zeros({1}));
  state.emplace_back("first.scale", zeros({2}));
  expect_error<InvalidArgument>(
      [&] { root.load_state_dict(state); },
      {"missing (2): frozen, list.1.calls", "unexpected (2): extra, list.2.scale",
       "wrong sizes (1): own (given [3, 2], module has [3, 1])", "given more than once (1): first.scale"});
  EXPECT_EQ(root.first->scale.to_vector<float>(), (std::vector<float>{1.5F, 1.5F}));

  root.load_state_dict(state, false);
  EXPECT_EQ(root.first->scale.to_vector<float>(), (std::vector<float>{9, 9}));
  EXPECT_EQ(root.own.to_vector<float>(), (std::vector<float>{4, 4, 4}));
  expect_error<InvalidArgument>([&] { root.load_state_dict({{"module.own", zeros({3, 1})}}, false); },
                                {"nothing", "module.own"});
}

}  // namespace
}  // namespace ddp::nn
