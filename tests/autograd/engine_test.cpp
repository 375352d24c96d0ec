#include "autograd/engine.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "autograd/accumulate_grad.h"
#include "ddp/autograd/function.h"
#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/autograd/hooks.h"

namespace ddp {
namespace {

using Numbers = std::vector<double>;

Tensor leaf(std::initializer_list<double> values) {
  Tensor x = tensor<double>(values);
  x.set_requires_grad();
  return x;
}

Numbers numbers(const Tensor& x) { return x.to_vector<double>(); }

/// The text of the error that `call` throws.
template <class Kind, class F>
std::string error_of(const F& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
}

TEST(Engine, GradientOfAProduct) {
  Tensor a = leaf({2, 3});
  Tensor b = leaf({5, 7});
  const Tensor y = sum(a * b);
  EXPECT_FALSE(y.is_leaf());
  EXPECT_TRUE(y.requires_grad());
  EXPECT_TRUE(a.is_leaf());
  EXPECT_FALSE(a.grad().defined());
  y.backward();
  EXPECT_EQ(numbers(a.grad()), (Numbers{5, 7}));
  EXPECT_EQ(numbers(b.grad()), (Numbers{2, 3}));
  EXPECT_FALSE(a.grad().requires_grad());
}

TEST(Engine, TwoBackwardsAddUp) {
  Tensor a = leaf({2, 3});
  sum(a * 4.0).backward();
  sum(a * a).backward();
  EXPECT_EQ(numbers(a.grad()), (Numbers{8, 10}));
  a.zero_grad();
  EXPECT_FALSE(a.grad().defined());
  sum(a * 4.0).backward();
  EXPECT_EQ(numbers(a.grad()), (Numbers{4, 4}));
}

TEST(Engine, LeafAsRoot) {
  Tensor a = leaf({2});
  a.backward();
  a.backward(tensor<double>({3}));
  EXPECT_EQ(numbers(a.grad()), (Numbers{4}));
}

TEST(Engine, SharedSubgraphRunsOnce) {
  Tensor x = leaf({3});
  int calls = 0;
  const auto pass = [](FunctionContext&, const std::vector<Tensor>& in) { return in; };
  const Tensor shared = apply_function("counted", {x * 2.0}, pass, [&](FunctionContext&, const std::vector<Tensor>& g) {
    ++calls;
    return g;
  })[0];
  // d/dx of s*s + 3s + s with s = 2x: 2 * (2s + 4).
  sum(shared * shared + shared * 3.0 + shared).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(numbers(x.grad()), (Numbers{32}));
}

TEST(Engine, ManyUsesOfOneLeaf) {
  Tensor w = leaf({1, 2, 3});
  Tensor y = w * 0.0;
  for (int i = 1; i <= 10; ++i) y = y + w * static_cast<double>(i);
  sum(y).backward();
  EXPECT_EQ(numbers(w.grad()), (Numbers{55, 55, 55}));
}

TEST(Engine, GradientsThatArriveAreNotChanged) {
  Tensor a = leaf({1, 2});
  Tensor b = leaf({3, 4});
  const Tensor y = (a * 1.0 + b * 1.0) + (a * 1.0 + b * 1.0);
  const Tensor gradient = tensor<double>({10, 20});
  y.backward(gradient);
  EXPECT_EQ(numbers(gradient), (Numbers{10, 20}));
  EXPECT_EQ(numbers(a.grad()), (Numbers{20, 40}));
  EXPECT_EQ(numbers(b.grad()), (Numbers{20, 40}));
  a.grad().fill_(0);  // not shared with b's
  EXPECT_EQ(numbers(b.grad()), (Numbers{20, 40}));
}

TEST(Engine, RetainGraph) {
  Tensor a = leaf({2, 3});
  const Tensor y = sum(a * a);
  y.backward({}, true);
  y.backward({}, true);
  EXPECT_EQ(numbers(a.grad()), (Numbers{8, 12}));
  y.backward();
  const std::string text = error_of<AutogradError>([&] { y.backward(); });
  expect_parts(text, {"second time", "mul", "retain_graph"});
}

TEST(Engine, InPlaceChangeOfASavedTensor) {
  Tensor a = leaf({2, 3});
  Tensor b = tensor<double>({5, 7});
  const Tensor y = sum(a * b);
  b.fill_(1);
  b.mul_(2);
  const std::string text = error_of<AutogradError>([&] { y.backward(); });
  expect_parts(text, {"mul", "[2]", "version 2", "version 0"});
  // An optimiser's step on a leaf is noticed as well.
  const Tensor z = sum(a * a);
  {
    const NoGradGuard no_grad;
    a.mul_(0.5);
  }
  EXPECT_THROW(z.backward(), AutogradError);
}

TEST(Engine, InPlaceChangeOfARecordedTensorIsRefused) {
  Tensor a = leaf({2, 3});
  EXPECT_THROW(a.fill_(0), AutogradError);
  Tensor y = a * 2.0;
  EXPECT_THROW(y.mul_(2), AutogradError);
}

TEST(Engine, WrongRoots) {
  Tensor a = leaf({2, 3});
  expect_parts(error_of<AutogradError>([&] { (a * 2.0).backward(); }), {"one element", "[2]"});
  expect_parts(error_of<AutogradError>([&] { (a * 2.0).backward(tensor<double>({1, 2, 3})); }), {"[3]", "[2]"});
  expect_parts(error_of<AutogradError>([&] { (a * 2.0).backward(tensor<float>({1, 2})); }), {"float32", "float64"});
  expect_parts(error_of<AutogradError>([&] { sum(tensor<double>({1, 2})).backward(); }), {"not recorded"});
  EXPECT_THROW(Tensor().backward(), AutogradError);
  EXPECT_FALSE(a.grad().defined());
}

TEST(Engine, LeavesOnly) {
  Tensor a = leaf({2, 3});
  Tensor y = a * 2.0;
  expect_parts(error_of<AutogradError>([&] { y.set_requires_grad(false); }), {"mul", "leaves"});
  Tensor whole = tensor<std::int64_t>({1});
  expect_parts(error_of<AutogradError>([&] { whole.set_requires_grad(); }), {"int64"});
  EXPECT_THROW(register_gradient_hook(y, [](const Tensor&) {}), AutogradError);
  EXPECT_THROW(register_gradient_hook(tensor<double>({1}), [](const Tensor&) {}), AutogradError);
  EXPECT_FALSE(y.grad().defined());
}

TEST(GradMode, NothingIsRecordedInside) {
  Tensor a = leaf({2});
  {
    const NoGradGuard no_grad;
    EXPECT_FALSE(grad_mode_enabled());
    EXPECT_FALSE((a * 2.0).requires_grad());
    {
      const GradModeGuard on(true);
      EXPECT_TRUE((a * 2.0).requires_grad());
    }
    EXPECT_FALSE(grad_mode_enabled());
    std::thread([] { EXPECT_TRUE(grad_mode_enabled()); }).join();
  }
  EXPECT_TRUE(grad_mode_enabled());
  EXPECT_TRUE((a * 2.0).requires_grad());
}

TEST(GradMode, DetachAndFrozenLeaves) {
  Tensor a = leaf({2});
  Tensor b = leaf({3});
  b.set_requires_grad(false);
  EXPECT_FALSE((a.detach() * b).requires_grad());
  sum(a * a.detach() * b).backward();
  EXPECT_EQ(numbers(a.grad()), (Numbers{6}));
  EXPECT_FALSE(b.grad().defined());
}

TEST(Hooks, RunOnceWithTheWholeGradient) {
  Tensor w = leaf({1, 1});
  std::vector<Numbers> seen;
  const auto id = register_gradient_hook(w, [&](const Tensor& gradient) { seen.push_back(numbers(gradient)); });
  sum(w * 2.0 + w * 3.0 + w).backward();
  EXPECT_EQ(seen, (std::vector<Numbers>{{6, 6}}));
  sum(w).backward();
  EXPECT_EQ(seen, (std::vector<Numbers>{{6, 6}, {7, 7}}));
  remove_gradient_hook(w, id);
  remove_gradient_hook(w, 99);
  sum(w).backward();
  EXPECT_EQ(seen.size(), 2U);
}

TEST(Hooks, RunWhileBackwardGoesOn) {
  Tensor first = leaf({1});
  Tensor last = leaf({1});
  std::vector<std::string> order;
  const auto note = [&](const char* what) {
    return [&order, what](FunctionContext&, const std::vector<Tensor>& in) {
      order.emplace_back(what);
      return in;
    };
  };
  const auto pass = [](FunctionContext&, const std::vector<Tensor>& in) { return in; };
  register_gradient_hook(last, [&](const Tensor&) { order.emplace_back("last"); });
  register_gradient_hook(first, [&](const Tensor&) { order.emplace_back("first"); });
  const Tensor inner = apply_function("inner", {first}, pass, note("inner"))[0];
  sum(inner * last).backward();
  EXPECT_EQ(order, (std::vector<std::string>{"last", "inner", "first"}));
}

TEST(Hooks, MayRemoveThemselves) {
  Tensor w = leaf({1});
  int calls = 0;
  std::uint64_t id = 0;
  id = register_gradient_hook(w, [&](const Tensor&) {
    ++calls;
    remove_gradient_hook(w, id);
    EXPECT_EQ(calls, 1);  // what the hook holds is still there
  });
  sum(w * 2.0).backward();
  sum(w * 2.0).backward();
  EXPECT_EQ(calls, 1);
}

TEST(Hooks, NotRunForALeafThatGotNothing) {
  Tensor used = leaf({1});
  Tensor unused = leaf({1});
  int calls = 0;
  register_gradient_hook(unused, [&](const Tensor&) { ++calls; });
  // The second result of the function is not used, and the gradient of the first leads to `used` only.
  const auto pass = [](FunctionContext&, const std::vector<Tensor>& in) { return in; };
  const auto only_first = [](FunctionContext&, const std::vector<Tensor>& g) { return std::vector<Tensor>{g[0], {}}; };
  const Tensor y = apply_function("half", {used * 1.0, unused * 1.0}, pass, only_first)[0];
  sum(y).backward();
  EXPECT_EQ(numbers(used.grad()), (Numbers{1}));
  EXPECT_FALSE(unused.grad().defined());
  EXPECT_EQ(calls, 0);
}

TEST(Callbacks, RunAtTheEndOnTheCallersThread) {
  Tensor w = leaf({1});
  std::vector<std::string> order;
  const auto caller = std::this_thread::get_id();
  std::uint64_t pass = 0;
  EXPECT_EQ(autograd::current_pass(), 0U);
  register_gradient_hook(w, [&](const Tensor&) {
    order.emplace_back("hook");
    pass = autograd::current_pass();
    autograd::queue_callback([&] {
      order.emplace_back("callback");
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(autograd::current_pass(), pass);
      autograd::queue_callback([&] { order.emplace_back("nested"); });
    });
  });
  Tensor other = leaf({1});
  register_gradient_hook(other, [&](const Tensor&) { order.emplace_back("other"); });
  sum(other * w).backward();
  EXPECT_NE(pass, 0U);
  EXPECT_EQ(autograd::current_pass(), 0U);
  ASSERT_EQ(order.size(), 4U);
  EXPECT_EQ(order[2], "callback");
  EXPECT_EQ(order[3], "nested");
  EXPECT_THROW(autograd::queue_callback([] {}), AutogradError);
}

TEST(Callbacks, RunWhenNoLeafIsReached) {
  Tensor w = leaf({1});
  bool called = false;
  const auto pass = [](FunctionContext&, const std::vector<Tensor>& in) { return in; };
  const Tensor y = apply_function("sink", {w}, pass, [&](FunctionContext&, const std::vector<Tensor>&) {
    autograd::queue_callback([&] { called = true; });
    return std::vector<Tensor>{{}};
  })[0];
  y.backward();
  EXPECT_TRUE(called);
  EXPECT_FALSE(w.grad().defined());
}

TEST(Callbacks, ErrorInOneIsThrownByBackward) {
  Tensor w = leaf({1});
  const auto id =
      register_gradient_hook(w, [&](const Tensor&) { autograd::queue_callback([] { throw CommError("lost"); }); });
  EXPECT_THROW(sum(w).backward(), CommError);
  EXPECT_EQ(autograd::current_pass(), 0U);
  EXPECT_TRUE(grad_mode_enabled());
  remove_gradient_hook(w, id);
  sum(w).backward();
  EXPECT_EQ(numbers(w.grad()), (Numbers{2}));
}

TEST(Errors, ExceptionInBackwardLeavesTheGraphUsable) {
  Tensor w = leaf({2});
  bool broken = true;
  bool called = false;
  const auto pass = [](FunctionContext&, const std::vector<Tensor>& in) { return in; };
  const Tensor middle = apply_function("fragile", {w * 3.0}, pass, [&](FunctionContext&, const std::vector<Tensor>& g) {
    autograd::queue_callback([&] { called = true; });
    if (broken) throw std::runtime_error("broken");
    return g;
  })[0];
  const Tensor y = sum(middle * 1.0 + middle + w * 5.0);
  EXPECT_THROW(y.backward({}, true), std::runtime_error);
  EXPECT_FALSE(called);
  EXPECT_TRUE(grad_mode_enabled());
  EXPECT_EQ(autograd::current_pass(), 0U);
  broken = false;
  w.zero_grad();
  y.backward();
  EXPECT_EQ(numbers(w.grad()), (Numbers{11}));
  EXPECT_TRUE(called);
}

TEST(Errors, GradientsOnTheirWayAreFreed) {
  Tensor w = full({4096}, 1.0, {DType::float64, Device::cpu()});
  w.set_requires_grad();
  const auto pass = [](FunctionContext&, const std::vector<Tensor>& in) { return in; };
  const auto fail = [](FunctionContext&, const std::vector<Tensor>&) -> std::vector<Tensor> {
    throw std::runtime_error("broken");
  };
  const Tensor shared = w * 1.0;
  const Tensor fragile = apply_function("fragile", {shared}, pass, fail)[0];
  const Tensor root = sum(fragile + shared * 2.0);  // the product, recorded last, hands its gradient over first
  const std::int64_t before = memory_stats(Device::cpu()).in_use;
  EXPECT_THROW(root.backward({}, true), std::runtime_error);
  EXPECT_EQ(memory_stats(Device::cpu()).in_use, before);
}

TEST(Errors, ExceptionInAHook) {
  Tensor w = leaf({2});
  Tensor v = leaf({2});
  const auto id = register_gradient_hook(w, [](const Tensor&) { throw std::runtime_error("hook"); });
  EXPECT_THROW(sum(w * v).backward(), std::runtime_error);
  remove_gradient_hook(w, id);
  w.zero_grad();
  v.zero_grad();
  sum(w * v).backward();
  EXPECT_EQ(numbers(w.grad()), (Numbers{2}));
  EXPECT_EQ(numbers(v.grad()), (Numbers{2}));
}

TEST(Reentrancy, BackwardInsideAFunction) {
  // Recomputes its forward in backward, as activation checkpointing does. The weight is used outside as well.
  Tensor w = leaf({3});
  int hooks = 0;
  register_gradient_hook(w, [&](const Tensor&) { ++hooks; });
  const auto body = [&](const Tensor& x) { return x * w * x; };
  const Tensor x = leaf({2});
  const Tensor y = apply_function(
      "checkpoint", {x},
      [&](FunctionContext& context, const std::vector<Tensor>& in) {
        context.save_for_backward({in[0]});
        return std::vector<Tensor>{body(in[0])};
      },
      [&](FunctionContext& context, const std::vector<Tensor>& grads) {
        EXPECT_FALSE(grad_mode_enabled());
        const GradModeGuard on(true);
        const std::uint64_t outer = autograd::current_pass();
        Tensor again = context.saved()[0].detach();
        again.set_requires_grad();
        body(again).backward(grads[0]);
        EXPECT_EQ(autograd::current_pass(), outer);
        return std::vector<Tensor>{again.grad()};
      })[0];
  sum(y * 10.0 + w * 7.0).backward();
  EXPECT_EQ(numbers(x.grad()), (Numbers{120}));
  EXPECT_EQ(numbers(w.grad()), (Numbers{47}));
  EXPECT_EQ(hooks, 2);  // one for each pass that reached it
}

TEST(Reentrancy, BackwardInsideAHookThroughTheSameGraph) {
  Tensor w = leaf({3});
  Tensor v = leaf({4});
  const Tensor y = sum(w * v);
  bool inside = false;
  register_gradient_hook(w, [&](const Tensor&) {
    if (inside) return;
    inside = true;
    y.backward({}, true);
  });
  y.backward({}, true);
  EXPECT_EQ(numbers(w.grad()), (Numbers{8}));
  EXPECT_EQ(numbers(v.grad()), (Numbers{6}));
}

TEST(Depth, ChainOfAHundredThousand) {
  Tensor w = leaf({1});
  {
    Tensor y = w;
    for (int i = 0; i < 100000; ++i) y = y + 1.0;
    y.backward();
    EXPECT_EQ(numbers(w.grad()), (Numbers{1}));
  }
  {
    // Never used for backward; two edges from each node to the next.
    Tensor y = w;
    for (int i = 0; i < 100000; ++i) y = y + y;
  }
  Tensor y = w;
  for (int i = 0; i < 100000; ++i) {
    y = apply_function(
        "pass", {y}, [](FunctionContext&, const std::vector<Tensor>& in) { return in; },
        [](FunctionContext&, const std::vector<Tensor>& g) { return g; })[0];
  }
}

TEST(Memory, IntermediateGradientsAreFreedEarly) {
  Tensor w = full({4096}, 1.0, {DType::float64, Device::cpu()});
  w.set_requires_grad();
  Tensor y = w;
  for (int i = 0; i < 50; ++i) y = y * 1.0;
  const Tensor root = sum(y);
  const std::int64_t before = memory_stats(Device::cpu()).in_use;
  reset_peak_memory(Device::cpu());
  root.backward();
  // The gradient coming in, the one going out, the leaf's, and small change; not fifty.
  EXPECT_LE(memory_stats(Device::cpu()).peak - before, 4 * 4096 * 8);
}

TEST(Memory, SavedTensorsAreFreedByBackward) {
  Tensor w = full({4096}, 1.0, {DType::float64, Device::cpu()});
  w.set_requires_grad();
  const std::int64_t before = memory_stats(Device::cpu()).in_use;
  Tensor root;
  {
    Tensor y = w;
    for (int i = 0; i < 20; ++i) y = tanh(y);
    root = sum(y);
  }
  EXPECT_GE(memory_stats(Device::cpu()).in_use - before, 20 * 4096 * 8);
  root.backward();
  EXPECT_LE(memory_stats(Device::cpu()).in_use - before, 2 * 4096 * 8);
}

}  // namespace
}  // namespace ddp
