#include "ddp/parallel/distributed_data_parallel.h"

#include <tuple>

#include "ddp/autograd/function.h"
#include "ddp/autograd/hooks.h"
#include "parallel/models.h"

namespace {

using namespace ddp;
using namespace ddp::test;
using parallel::DDPOptions;
using parallel::DistributedDataParallel;

class DdpRanks : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(DdpRanks, GradientIsTheMeanAndCopiesAreExact) {
  const auto [size, views] = GetParam();
  on_ranks(size, [&, views = views, size = size](int rank, const auto& group) {
    auto module = std::make_shared<Many>(3, 40);
    auto model = wrap(module, group, {.bucket_cap_bytes = {160}, .gradient_as_bucket_view = views});
    for (int step = 1; step <= 4; ++step) {
      model.zero_grad();
      EXPECT_FALSE(module->p[0].grad().defined());
      run_backward(model(size * (rank + 1.0) * step));
      const double mean = size == 1 ? step : size * (size + 1) / 2.0 * step;
      for (const Tensor& parameter : module->p) {
        EXPECT_EQ(parameter.grad().to_vector<double>(), std::vector<double>(40, mean));
      }
    }
    const std::uint64_t bytes = 3 * 40 * sizeof(float);
    if (views) {
      EXPECT_LE(model.counters().bytes_copied, 4 * bytes);  // by the product's backward: see ZeroCopies for layers
    } else {
      EXPECT_EQ(model.counters().bytes_copied, size == 1 ? 0 : 4 * 2 * bytes);
    }
    EXPECT_EQ(model.counters().passes, size == 1 ? 0U : 4U);
    EXPECT_EQ(model.reducer() == nullptr, size == 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, DdpRanks, testing::Combine(testing::Values(1, 2, 3, 4), testing::Bool()));

TEST(Ddp, CollectivesStartBeforeBackwardEndsInTheFirstStep) {
  on_ranks(2, [](int, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    auto module = std::make_shared<Many>(4, 16);
    auto model = wrap(module, group, {.bucket_cap_bytes = {64}});
    std::size_t launched_when_last_arrived = 0;
    std::size_t arrived = 0;
    for (const Tensor& parameter : module->p) {
      register_gradient_hook(parameter, [&](const Tensor&) {
        if (++arrived == 4) launched_when_last_arrived = reduced_labels(*group).size();
      });
    }
    group->clear_calls();
    run_backward(model(1.0));
    EXPECT_EQ(arrived, 4U);
    EXPECT_GE(launched_when_last_arrived, 2U);
    EXPECT_EQ(reduced_labels(*group),
              (std::vector<std::string>{"bucket 0: p3", "bucket 1: p2", "bucket 2: p1", "bucket 3: p0"}));
    EXPECT_GE(model.counters().launched_before_last, 2U);
  });
}

// Uses its parameters in an order that differs from that of registration, and from rank to rank.
class Shuffled : public Many {
 public:
  explicit Shuffled(std::vector<std::size_t> order) : Many(4, 16), order_(std::move(order)) {}
  Tensor forward(double x) {
    Tensor y = mul(p[order_[0]], x);
    for (std::size_t i = 1; i < order_.size(); ++i) y = mul(y, p[order_[i]]);
    return y;
  }

 private:
  std::vector<std::size_t> order_;
};

TEST(Ddp, RebuildIsAgreedAndGradientsStayValid) {
  std::vector<std::vector<std::vector<std::size_t>>> plans(3);
  on_ranks(3, [&](int rank, const auto& group) {
    const std::vector<std::vector<std::size_t>> orders = {{2, 0, 3, 1}, {0, 1, 2, 3}, {3, 2, 1, 0}};
    auto module = std::make_shared<Shuffled>(orders[static_cast<std::size_t>(rank)]);
    auto model = wrap(module, group, {.bucket_cap_bytes = {128}});
    run_backward(model(3.0 * rank));
    const Tensor held = module->p[2].grad();
    const Tensor handle = module->p[2];
    EXPECT_EQ(held.to_vector<double>(), std::vector<double>(16, 3));
    // Not cleared: the second backward adds to gradients that have moved.
    const Tensor y = model(3.0 * rank + 6);
    EXPECT_EQ(handle.grad().to_vector<double>(), std::vector<double>(16, 3));
    run_backward(y);
    EXPECT_EQ(handle.grad().to_vector<double>(), std::vector<double>(16, 12));
    model.zero_grad();
    run_backward(model(3.0 * rank + 1));
    for (const Tensor& parameter : module->p) {
      EXPECT_EQ(parameter.grad().to_vector<double>(), std::vector<double>(16, 4));
    }
    EXPECT_EQ(model.counters().rebuilds, 1U);
    for (const auto& bucket : model.reducer()->plan()) plans[static_cast<std::size_t>(rank)].push_back(bucket.slots);
  });
  EXPECT_EQ(plans[0], plans[1]);
  EXPECT_EQ(plans[0], plans[2]);
  EXPECT_NE(plans[0], (std::vector<std::vector<std::size_t>>{{3, 2}, {1, 0}}));
}

TEST(Ddp, GradientsAreBornInTheBucket) {
  on_ranks(2, [](int, const auto& group) {
    auto module = std::make_shared<Many>(2, 16);
    auto model = wrap(module, group, {.rebuild = false});
    run_backward(model(1.0));
    EXPECT_EQ(module->p[0].grad().data(), model.reducer()->gradient_data(0));
    EXPECT_EQ(module->p[1].grad().data(), model.reducer()->gradient_data(1));
  });
}

struct Named {
  Tensor first;
  std::vector<Tensor> rest;
  std::vector<Tensor*> tensors() { return {&first, &rest[0], &rest[1]}; }
};

class ManyOutputs : public Many {
 public:
  ManyOutputs() : Many(3, 1) {}
  Named forward(const Tensor& x, double factor, const std::string& kind) {
    EXPECT_EQ(kind, "text");
    return {mul(p[0], x), {mul(p[1], mul(x, factor)), mul(p[2], x)}};
  }
};

class TupleOutputs : public Many {
 public:
  TupleOutputs() : Many(3, 1) {}
  std::tuple<Tensor, std::pair<Tensor, std::vector<Tensor>>> forward(const Tensor& x) {
    return {mul(p[0], x), {mul(p[1], x), {mul(p[2], x), scalar(5)}}};
  }
};

TEST(Ddp, SeveralInputsAndOutputs) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<ManyOutputs>();
    auto model = wrap(module, group);
    Named out = model(scalar(2.0 * rank), 3.0, "text");
    run_backward(add(add(out.first, out.rest[0]), out.rest[1]));
    EXPECT_EQ(value_of(module->p[0].grad()), 1);
    EXPECT_EQ(value_of(module->p[1].grad()), 3);

    auto other = std::make_shared<TupleOutputs>();
    auto second = wrap(other, group);
    auto [a, rest] = second(scalar(2.0 * rank));
    EXPECT_FALSE(rest.second[1].requires_grad());
    run_backward(add(add(a, rest.first), rest.second[0]));
    for (const Tensor& parameter : other->p) EXPECT_EQ(value_of(parameter.grad()), 1);
  });
}

TEST(Ddp, OutputLeftOutOfTheLossIsAMissingGradient) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<TupleOutputs>();
    auto model = wrap(module, group);
    auto [a, rest] = model(scalar(1));
    const Tensor loss = rank == 0 ? add(add(a, rest.first), rest.second[0]) : add(a, rest.second[0]);
    const std::string text = text_of<ReductionError>([&] { run_backward(loss); });
    EXPECT_TRUE(has(text, "'p1' got no gradient on rank 1")) << text;
  });
}

// Its output depends on the input alone.
class Detour : public Scale {
 public:
  Tensor forward(const Tensor& x) { return mul(x, 2.0); }
};

TEST(Ddp, OutputReachedButNoParameter) {
  on_ranks(2, [](int, const auto& group) {
    auto model = wrap(std::make_shared<Detour>(), group);
    Tensor x = scalar(3);
    x.set_requires_grad();
    const std::string text = text_of<ReductionError>([&] { run_backward(model(x)); });
    EXPECT_TRUE(has(text, "'w' got no gradient on all 2 ranks")) << text;
  });
}

// B02: one step, one unused parameter in the same bucket.
TEST(Ddp, UnusedParameterStopsTheStepOnEveryRank) {
  for (const int unused_rank : {0, 1, -1}) {
    on_ranks(2, [&](int rank, const auto& group) {
      auto module = std::make_shared<Two>(7, 8);
      auto model = wrap(module, group);
      module->use_b = unused_rank == 1 - rank;
      const Tensor y = model(rank == 0 ? 2.0 : 5.0);
      const std::string text = text_of<ReductionError>([&] { run_backward(y); });
      EXPECT_TRUE(has(text, "'b' got no gradient")) << text;
      EXPECT_TRUE(has(text, unused_rank < 0 ? "all 2 ranks" : concat("rank ", unused_rank))) << text;
      EXPECT_EQ(value_of(module->a), 7);
      // The next, complete step is right.
      module->use_b = true;
      model.zero_grad();
      run_backward(model(rank == 0 ? 2.0 : 5.0));
      EXPECT_EQ(value_of(module->a.grad()), 3.5);
      EXPECT_EQ(value_of(module->b.grad()), 3.5);
    });
  }
  on_ranks(1, [&](int, const auto& group) {
    auto module = std::make_shared<Two>();
    auto model = wrap(module, group);
    module->use_b = false;
    run_backward(model(2.0));
    EXPECT_EQ(value_of(module->a.grad()), 2);
    EXPECT_FALSE(module->b.grad().defined());
  });
}

// B04: y = w * (w * x) with one tensor under two names.
class Tied : public nn::Module {
 public:
  explicit Tied(double value)
      : first(register_module("emb", std::make_shared<Scale>(value))), second(std::make_shared<Half>(first->w)) {
    register_module("head", second);
  }
  Tensor forward(double x) { return second->forward(first->forward(x)); }

  class Half : public nn::Module {
   public:
    explicit Half(const Tensor& shared) : w(register_parameter("w", shared)) {}
    Tensor forward(const Tensor& x) { return mul(w, x); }
    Tensor w;
  };
  std::shared_ptr<Scale> first;
  std::shared_ptr<Half> second;
};

TEST(Ddp, TiedParameterHasOneSlotAndOneStep) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Tied>(2.5);
    auto model = wrap(module, group);
    EXPECT_EQ(model.parameters().size(), 1U);
    ASSERT_EQ(model.reducer()->num_slots(), 1U);
    run_backward(model(rank == 0 ? 2.0 : 6.0));  // locals 2wx: 10 and 30
    EXPECT_EQ(value_of(module->first->w.grad()), 20);
    descend(model.parameters(), 0.0625);
    EXPECT_EQ(value_of(module->first->w), 1.25);
    EXPECT_EQ(value_of(module->second->w), 1.25);
    EXPECT_TRUE(module->first->w.shares_storage_with(module->second->w));
    model.zero_grad();
    run_backward(model(0.0));
    descend(model.parameters(), 0.0625);
    EXPECT_EQ(value_of(module->second->w), 1.25);
  });
}

TEST(Ddp, IgnoredParametersAreLeftToThemselves) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Two>(1 + rank, 10 + rank);
    auto model = wrap(module, group, {.parameters_to_ignore = {"b"}});
    EXPECT_EQ(model.reducer()->num_slots(), 1U);
    EXPECT_EQ(value_of(module->a), 1);
    EXPECT_EQ(value_of(module->b), 10 + rank);
    run_backward(model(rank + 2.0));
    EXPECT_EQ(value_of(module->a.grad()), 2.5);
    EXPECT_EQ(value_of(module->b.grad()), rank + 2.0);
    const std::string text =
        text_of<InvalidArgument>([&] { wrap(std::make_shared<Two>(), group, {.parameters_to_ignore = {"c"}}); });
    EXPECT_TRUE(has(text, "'c'")) << text;
  });
}

TEST(Ddp, WrappingTwiceIsRefusedUntilTheFirstWrapperIsGone) {
  for (const int size : {1, 2}) {
    on_ranks(size, [&](int rank, const auto& group) {
      auto module = std::make_shared<Scale>();
      for (int round = 0; round < 2; ++round) {
        auto model = wrap(module, group);
        const std::string text = text_of<InvalidArgument>([&] { wrap(module, group); });
        EXPECT_TRUE(has(text, "'w' belongs to a module that is wrapped already")) << text;
        model.zero_grad();
        run_backward(model(size * (rank + 1.0)));
        EXPECT_EQ(value_of(module->w.grad()), size == 1 ? 1 : 3);
      }
      EXPECT_EQ(value_of(module->w.grad()), size == 1 ? 1 : 3);  // kept, in memory of its own
    });
  }
}

// B08 E: averaging by hand after backward changes nothing.
TEST(Ddp, AveragingAgainByHandKeepsTheMean) {
  on_ranks(4, [](int rank, const auto& group) {
    auto module = std::make_shared<Scale>();
    auto model = wrap(module, group);
    run_backward(model(2.0 * rank));
    EXPECT_EQ(value_of(module->w.grad()), 3);
    Tensor gradient = module->w.grad();
    group->all_reduce(gradient).wait();
    gradient.mul_(0.25);
    EXPECT_EQ(value_of(module->w.grad()), 3);
  });
}

TEST(Ddp, NothingTrainablePassesThrough) {
  on_ranks(2, [](int, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    auto module = std::make_shared<Scale>(4);
    module->w.set_requires_grad(false);
    auto model = wrap(module, group);
    group->clear_calls();
    EXPECT_EQ(model.reducer(), nullptr);
    Tensor x = scalar(3);
    x.set_requires_grad();
    run_backward(model(x));
    EXPECT_EQ(value_of(x.grad()), 4);
    EXPECT_TRUE(group->calls().empty());
  });
}

TEST(Ddp, WorldSizeOneAddsNothing) {
  on_ranks(1, [](int, const auto& group) {
    const auto before = group->counters().collectives;
    auto module = std::make_shared<Scale>(4);
    auto model = wrap(module, group);
    const Tensor y = model(2.0);
    run_backward(y);
    EXPECT_EQ(value_of(module->w.grad()), 2);
    EXPECT_EQ(group->counters().collectives, before);
  });
}

TEST(Ddp, TwoForwardsOneBackwardAndRetainedGraph) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Scale>();
    auto model = wrap(module, group);
    const Tensor both = add(model(1.0 + rank), model(10.0 + rank));
    both.backward(ones(both.sizes(), both.options()), true);
    EXPECT_EQ(value_of(module->w.grad()), 12);
    model.zero_grad();
    run_backward(both);
    EXPECT_EQ(value_of(module->w.grad()), 12);
    // Two losses with a backward each: the second mean is added to the first.
    model.zero_grad();
    const Tensor first = model(1.0 + rank);
    const Tensor second = model(20.0 + rank);
    run_backward(first);
    EXPECT_EQ(value_of(module->w.grad()), 1.5);
    run_backward(second);
    EXPECT_EQ(value_of(module->w.grad()), 22);
  });
}

TEST(Ddp, ParameterReachedPastTheOutputs) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Scale>(3);
    auto model = wrap(module, group);
    run_backward(add(model(rank + 1.0), mul(module->w, module->w)));
    EXPECT_EQ(value_of(module->w.grad()), 7.5);
    model.zero_grad();
    run_backward(mul(module->w, 2.0 * rank));  // not through the module at all
    EXPECT_EQ(value_of(module->w.grad()), 1);
  });
}

TEST(Ddp, GraphMayOutliveTheWrapper) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Scale>(3);
    Tensor y;
    {
      auto model = wrap(module, group);
      y = model(rank + 1.0);
    }
    run_backward(y);
    EXPECT_EQ(value_of(module->w.grad()), rank + 1.0);  // nobody averages any more
  });
}

class Failing : public Scale {
 public:
  Tensor forward(double x) {
    const Tensor y = apply_function(
        "sometimes", {w},
        [](FunctionContext&, const std::vector<Tensor>& in) { return std::vector<Tensor>{clone(in[0])}; },
        [this](FunctionContext&, const std::vector<Tensor>& grads) {
          if (fail) throw std::runtime_error("bad sample 31");
          return grads;
        })[0];
    return mul(y, x);
  }
  bool fail = false;
};

TEST(Ddp, ThrowInBackwardIsNamedOnTheOthersAndTrainingCanGoOn) {
  on_ranks(3, [](int rank, const auto& group) {
    auto module = std::make_shared<Failing>();
    auto model = wrap(module, group);
    for (int round = 0; round < 3; ++round) {
      model.zero_grad();
      module->fail = rank == round;
      const Tensor y = model(2.0 * rank);
      if (module->fail) {
        const std::string text = text_of<std::runtime_error>([&] { run_backward(y); });
        EXPECT_EQ(text, "bad sample 31");
      } else {
        const std::string text = text_of<ReductionError>([&] { run_backward(y); });
        EXPECT_TRUE(has(text, concat("rank ", round, " left backward by an exception"))) << text;
      }
      module->fail = false;
      model.zero_grad();
      run_backward(model(2.0 * rank));
      EXPECT_EQ(value_of(module->w.grad()), 2);
    }
  });
}

TEST(Ddp, ThrowBeforeBackwardUnwindsAndThePeersFailInTime) {
  on_ranks(2,
           [](int rank, const auto& group) {
             auto module = std::make_shared<Scale>();
             if (rank == 1) {
               try {
                 auto model = wrap(module, group);
                 const Tensor y = model(1.0);
                 throw std::runtime_error("bad sample 17");
               } catch (const std::runtime_error&) {
                 return;  // quickly: nothing here waits for the peer
               }
             }
             auto model = wrap(module, group);
             const std::string text = text_of<CommError>([&] { run_backward(model(1.0)); });
             EXPECT_TRUE(has(text, "bucket 0: w")) << text;
           },
           {.timeout = std::chrono::milliseconds(1500)});
}

}  // namespace
