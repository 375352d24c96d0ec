// The model's state: start, buffers, parameters that change, accumulation, memory.
#include <algorithm>

#include "ddp/parallel/agree.h"
#include "parallel/models.h"

namespace {

using namespace ddp;
using namespace ddp::test;
using parallel::DDPOptions;

std::size_t calls_of(const RecordingGroup& group, comm::CollectiveKind kind) {
  const auto calls = group.calls();
  return static_cast<std::size_t>(
      std::count_if(calls.begin(), calls.end(), [&](const auto& call) { return call.kind == kind; }));
}

// B01. Locals 3 then 8 on rank 0, 5 then 10 on rank 1.
double first_input(int rank) { return rank == 0 ? 3 : 5; }
double second_input(int rank) { return rank == 0 ? 8 : 10; }

enum class Cover { both, forward, backward };
class NoSync : public testing::TestWithParam<std::tuple<Cover, bool>> {};

TEST_P(NoSync, AccumulatesLocallyThenAveragesTheSum) {
  const auto [cover, views] = GetParam();
  on_ranks(2, [cover = cover, views = views](int rank, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    auto module = std::make_shared<Scale>();
    auto model = wrap(module, group, {.gradient_as_bucket_view = views});
    for (int round = 0; round < 3; ++round) {
      model.zero_grad();
      group->clear_calls();
      if (cover == Cover::both) {
        const auto guard = model.no_sync();
        run_backward(model(first_input(rank)));
      } else if (cover == Cover::forward) {
        Tensor y;
        {
          const auto guard = model.no_sync();
          y = model(first_input(rank));
        }
        run_backward(y);
      } else {
        const Tensor y = model(first_input(rank));
        group->clear_calls();  // that forward may agree on a plan
        const auto guard = model.no_sync();
        run_backward(y);
      }
      EXPECT_EQ(value_of(module->w.grad()), first_input(rank));
      EXPECT_TRUE(group->calls().empty());
      run_backward(model(second_input(rank)));
      EXPECT_EQ(value_of(module->w.grad()), 13);  // (11 + 15) / 2
      EXPECT_EQ(calls_of(*group, comm::CollectiveKind::all_reduce), 1U);
    }
    // Wrong way round: first averaged, second not. The ranks now differ, as the caller asked.
    model.zero_grad();
    run_backward(model(first_input(rank)));
    EXPECT_EQ(value_of(module->w.grad()), 4);
    const auto guard = model.no_sync();
    run_backward(model(second_input(rank)));
    EXPECT_EQ(value_of(module->w.grad()), 4 + second_input(rank));
  });
}

INSTANTIATE_TEST_SUITE_P(Covers, NoSync,
                         testing::Combine(testing::Values(Cover::both, Cover::forward, Cover::backward),
                                          testing::Bool()));

TEST(NoSyncGuard, NestsAndSendsAsOftenAsWithoutAccumulation) {
  on_ranks(3, [](int rank, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    auto module = std::make_shared<Many>(3, 16);
    auto model = wrap(module, group, {.bucket_cap_bytes = {64}, .rebuild = false});
    group->clear_calls();
    {
      const auto outer = model.no_sync();
      {
        const auto inside = model.no_sync();
        run_backward(model(3.0 * rank));
      }
      run_backward(model(3.0 * rank));
      run_backward(model(3.0 * rank));
    }
    EXPECT_TRUE(group->calls().empty());
    run_backward(model(3.0 * rank + 1));
    EXPECT_EQ(group->calls().size(), 3U);
    EXPECT_EQ(module->p[1].grad().template to_vector<double>(), std::vector<double>(16, 13));
  });
}

// Parameters and buffers of several dtypes and layouts, different on each rank.
class State : public nn::Module {
 public:
  explicit State(int rank) {
    a = register_parameter("a", full({3}, 1.0 + rank));
    const Tensor flat = arange(6, {DType::float64});
    Tensor columns = transpose(reshape(flat, {3, 2}), 0, 1);
    columns.add_(full({2, 3}, 100.0 * rank, {DType::float64}));
    b = register_parameter("b", columns);
    gaps = register_buffer("gaps", slice(full({8}, 5.0 + rank), 0, 0, 8, 2));
    count = register_buffer("count", full({1}, 40 + rank, {DType::int64}));
    mean = register_buffer("mean", full({2}, 0.5 + rank));
  }
  Tensor forward(double x) {
    return add(mul(slice(a, 0, 0, 1, 1), x),
               mul(reshape(slice(slice(ddp::to(b, DType::float32), 0, 0, 1, 1), 1, 0, 1, 1), {1}), x));
  }
  Tensor a, b, gaps, count, mean;
};

void expect_rank_zeros(const State& state) {
  EXPECT_EQ(state.a.to_vector<double>(), std::vector<double>(3, 1));
  EXPECT_EQ(state.b.to_vector<double>(), (std::vector<double>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(state.gaps.to_vector<double>(), std::vector<double>(4, 5));
  EXPECT_EQ(state.count.to_vector<std::int64_t>(), std::vector<std::int64_t>{40});
  EXPECT_EQ(state.mean.to_vector<double>(), std::vector<double>(2, 0.5));
}

TEST(Start, EveryRankGetsRankZerosState) {
  on_ranks(3, [](int rank, const auto& group) {
    auto module = std::make_shared<State>(rank);
    auto model = wrap(module, group);
    expect_rank_zeros(*module);
    EXPECT_EQ(model.named_parameters()[0].first, "a");
    EXPECT_EQ(model.state_dict().size(), 5U);
  });
}

TEST(Start, InitSyncOffSendsNothing) {
  on_ranks(2, [](int rank, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    auto module = std::make_shared<State>(rank);
    auto model = wrap(module, group, {.init_sync = false});
    EXPECT_TRUE(group->calls().empty());
    EXPECT_EQ(module->a.template to_vector<double>(), std::vector<double>(3, 1 + rank));
  });
}

// B20: rank `size - 1` is the odd one.
class Described : public nn::Module {
 public:
  Described(const Dims& weight, bool bias, DType dtype, bool any, bool extra, bool frozen) {
    if (any) register_parameter("weight", zeros(weight, {dtype}), !frozen);
    if (any && bias) register_parameter("bias", zeros({6}, {dtype}));
    register_buffer("mean", zeros({2}));
    if (extra) register_buffer("extra", zeros({1}));
  }
  Tensor forward(double x) { return scalar(x); }
};

TEST(Start, DifferencesAreNamedOnEveryRank) {
  struct Case {
    Dims weight = {6, 3};
    bool bias = true;
    DType dtype = DType::float32;
    bool any = true;
    bool extra = false;
    bool frozen = false;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {.weight = {6, 2}, .parts = {"sizes of parameter 'weight'", "[6, 3] on rank 0", "[6, 2] on rank "}},
      {.bias = false, .parts = {"parameter 1: 'bias' [6] float32 on rank 0, none on rank "}},
      {.dtype = DType::float64, .parts = {"dtype of parameter 'weight'", "float32 on rank 0", "float64 on rank "}},
      {.any = false, .parts = {"parameter 0: 'weight' [6, 3] float32 on rank 0, none on rank ", "0 on rank "}},
      {.extra = true, .parts = {"buffer 1: none on rank 0, 'extra' [1] float32 on rank "}},
      {.frozen = true, .parts = {"requires_grad of parameter 'weight': true on rank 0, false on rank "}},
  };
  for (const int size : {2, 3}) {
    for (const Case& one : cases) {
      on_ranks(size, [&](int rank, const auto& group) {
        const Case mine = rank == size - 1 ? one : Case{};
        auto module =
            std::make_shared<Described>(mine.weight, mine.bias, mine.dtype, mine.any, mine.extra, mine.frozen);
        const std::string text = text_of<InvalidArgument>([&] { wrap(module, group); });
        for (const std::string& part : one.parts) EXPECT_TRUE(has(text, part)) << text;
        EXPECT_TRUE(has(text, concat("rank ", size - 1))) << text;
      });
    }
  }
}

TEST(Start, DifferentOptionsAreNamed) {
  on_ranks(2, [](int rank, const auto& group) {
    const std::string text = text_of<InvalidArgument>(
        [&] { wrap(std::make_shared<Scale>(), group, {.gradient_as_bucket_view = rank == 0}); });
    EXPECT_TRUE(has(text, "option gradient_as_bucket_view: true on rank 0, false on rank 1")) << text;
  });
}

TEST(Buffers, FollowRankZeroBeforeTrainingForwardsOnly) {
  on_ranks(2, [](int rank, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    auto module = std::make_shared<State>(rank);
    auto model = wrap(module, group, {.rebuild = false});
    const auto change = [&] {
      module->count.fill_(50 + rank);
      module->mean.fill_(7 + rank);
      group->clear_calls();
    };
    change();
    model(1.0);
    EXPECT_EQ(calls_of(*group, comm::CollectiveKind::broadcast), 2U);  // one for each dtype
    EXPECT_EQ(group->calls().size(), 2U);
    EXPECT_EQ(module->count.template to_vector<std::int64_t>(), std::vector<std::int64_t>{50});
    EXPECT_EQ(module->mean.template to_vector<double>(), std::vector<double>(2, 7));
    change();
    {
      const NoGradGuard guard;
      model(1.0);
    }
    {
      const auto guard = model.no_sync();
      model(1.0);
    }
    model.eval();
    model(1.0);
    EXPECT_TRUE(group->calls().empty());
    EXPECT_EQ(module->mean.template to_vector<double>(), std::vector<double>(2, 7 + rank));
  });
}

// B18: evaluation on one rank, between training steps of all.
TEST(Buffers, EvaluationOnOneRankSendsNothing) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<State>(rank);
    auto model = wrap(module, group);
    for (int step = 0; step < 3; ++step) {
      model.train();
      model.zero_grad();
      run_backward(model(rank == 0 ? 1.0 : 4.0));
      EXPECT_EQ(module->a.grad().template to_vector<double>(), (std::vector<double>{2.5, 0, 0}));
      if (rank == 0) {
        model.eval();
        const NoGradGuard guard;
        for (int i = 0; i < 5; ++i) model(1.0);
      }
      group->barrier();
    }
  });
}

// What an earlier forward has saved of a buffer stays good: the next one sends the same numbers.
TEST(Buffers, TwoForwardsThenBackward) {
  class Scaled : public nn::Module {
   public:
    Scaled() : w(register_parameter("w", scalar(1))), factor(register_buffer("factor", scalar(3))) {}
    Tensor forward(double x) { return mul(mul(w, factor), x); }
    Tensor w;
    Tensor factor;
  };
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Scaled>();
    auto model = wrap(module, group);
    const Tensor first = model(rank + 1.0);
    run_backward(add(first, model(10.0)));
    EXPECT_EQ(value_of(module->w.grad()), 34.5);  // 3 * (1.5 + 10)
  });
}

TEST(Buffers, OffMeansOff) {
  on_ranks(2, [](int rank, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    auto module = std::make_shared<State>(rank);
    auto model = wrap(module, group, {.broadcast_buffers = false});
    group->clear_calls();
    model(1.0);
    EXPECT_TRUE(group->calls().empty());
  });
}

// B05 B: freezing for a while.
TEST(Parameters, FreezeAndThaw) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Two>(1, 1);
    auto model = wrap(module, group);
    double b = 1;
    for (int step = 1; step <= 6; ++step) {
      const bool frozen = step == 3 || step == 4;
      module->b.set_requires_grad(!frozen);
      model.zero_grad();
      run_backward(model(rank == 0 ? 2.0 * step : 4.0 * step));
      EXPECT_EQ(value_of(module->a.grad()), 3.0 * step);
      EXPECT_EQ(module->b.grad().defined(), !frozen);
      if (!frozen) {
        EXPECT_EQ(value_of(module->b.grad()), 3.0 * step);
        b -= 0.125 * 3 * step;
      }
      descend(model.parameters(), 0.125);
      EXPECT_EQ(value_of(module->b), b);
    }
  });
}

// B05 C: frozen on one rank only.
TEST(Parameters, FrozenOnOneRankIsNamedOnAll) {
  for (const int culprit : {0, 1}) {
    on_ranks(2, [&](int rank, const auto& group) {
      auto module = std::make_shared<Two>();
      auto model = wrap(module, group);
      run_backward(model(1.0));
      if (rank == culprit) module->b.set_requires_grad(false);
      model.zero_grad();
      const Tensor y = model(1.0);
      const std::string text = text_of<ReductionError>([&] { run_backward(y); });
      EXPECT_TRUE(has(text, concat("'b' is frozen (requires_grad false) on rank ", culprit))) << text;
    });
  }
}

TEST(Parameters, ThawedAfterWrappingNeedsANewWrapper) {
  on_ranks(2, [](int, const auto& group) {
    auto module = std::make_shared<Two>();
    module->b.set_requires_grad(false);
    auto model = wrap(module, group);
    run_backward(model(1.0));
    module->b.set_requires_grad(true);
    const std::string text = text_of<InvalidArgument>([&] { model(1.0); });
    EXPECT_TRUE(has(text, "'b' did not require grad when the module was wrapped")) << text;
  });
}

// B05 A: the module computes with another tensor than the one that is registered.
TEST(Parameters, ReplacedParameterIsNamed) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Scale>(1, "weight");
    auto model = wrap(module, group);
    module->w = scalar(1);
    module->w.set_requires_grad();
    Tensor x = scalar(rank + 1.0);
    const std::string text = text_of<ReductionError>([&] { run_backward(model(x)); });
    EXPECT_TRUE(has(text, "'weight' got no gradient on all 2 ranks")) << text;
  });
}

TEST(Parameters, WrappedModuleIsNotConverted) {
  for (const bool views : {true, false}) {
    on_ranks(2, [&](int, const auto& group) {
      auto module = std::make_shared<Scale>();
      {
        auto model = wrap(module, group, {.gradient_as_bucket_view = views});
        const std::string text = text_of<InvalidArgument>([&] { module->to(DType::float64); });
        EXPECT_TRUE(has(text, "'w'")) << text;
      }
      module->to(DType::float64);
      EXPECT_EQ(module->w.dtype(), DType::float64);
    });
  }
}

// B06: the gradient's natural strides are (1, 2).
class Transposed : public nn::Module {
 public:
  Transposed() : w(register_parameter("w", zeros({2, 3}))) {}
  Tensor forward(const Tensor& x) { return mul(transpose(w, 0, 1), x); }
  Tensor w;
};

TEST(Parameters, StridedGradientIsReducedByElement) {
  for (const bool views : {true, false}) {
    on_ranks(2, [&](int rank, const auto& group) {
      auto module = std::make_shared<Transposed>();
      auto model = wrap(module, group, {.gradient_as_bucket_view = views});
      std::vector<float> x(6);  // [3, 2]: element (j, i) is the gradient of w[i][j]
      for (std::size_t j = 0; j < 3; ++j) {
        for (std::size_t i = 0; i < 2; ++i) x[j * 2 + i] = static_cast<float>((rank + 1) * (7 * i + j) * 2);
      }
      run_backward(model(put(tensor(x, {3, 2}))));
      EXPECT_EQ(module->w.grad().template to_vector<double>(), (std::vector<double>{0, 3, 6, 21, 24, 27}));
    });
  }
}

// B12: all ways of clearing, views on and off.
TEST(Gradients, EveryWayOfClearingKeepsTheMean) {
  for (const bool views : {true, false}) {
    on_ranks(2, [&](int rank, const auto& group) {
      auto module = std::make_shared<Scale>();
      auto model = wrap(module, group, {.gradient_as_bucket_view = views});
      enum Mode { in_place, none, assign };
      int step = 0;
      for (const Mode mode : {none, in_place, none, none, assign, in_place, none}) {
        ++step;
        if (mode == none) module->w.zero_grad();
        if (mode == in_place) module->w.grad().zero_();
        if (mode == assign) module->w.set_grad(scalar(0));
        run_backward(model((rank + 1.0) * step));
        EXPECT_EQ(value_of(module->w.grad()), 1.5 * step) << "step " << step;
      }
    });
  }
}

TEST(Gradients, HeldGradientStaysWithoutViews) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Scale>();
    auto model = wrap(module, group, {.gradient_as_bucket_view = false});
    run_backward(model(rank + 1.0));
    const Tensor held = module->w.grad();
    model.zero_grad();
    run_backward(model(rank + 10.0));
    EXPECT_EQ(value_of(held), 1.5);
    EXPECT_EQ(value_of(module->w.grad()), 10.5);
  });
}

TEST(Gradients, MemoryIsHeldOnceWithViewsAndTwiceWithout) {
  const std::int64_t elements = 1 << 20;
  const auto bytes = static_cast<double>(4 * elements * 4);
  for (const bool views : {true, false}) {
    double extra = 0;
    on_ranks(2, [&](int rank, const auto& group) {
      auto module = std::make_shared<Many>(4, elements);
      group->barrier();
      const std::int64_t before = memory_stats(test_device()).in_use;
      group->barrier();
      auto model = wrap(module, group, {.gradient_as_bucket_view = views});
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        run_backward(model(1.0));
      }
      group->barrier();
      if (rank == 0) extra = static_cast<double>(memory_stats(test_device()).in_use - before);
      group->barrier();
    });
    EXPECT_LE(extra / 2, (views ? 1.1 : 2.1) * bytes);
    EXPECT_GE(extra / 2, (views ? 1.0 : 2.0) * bytes);
  }
}

TEST(AgreeSeed, EqualPassesAndDifferentNamesBoth) {
  on_ranks(3, [](int rank, const auto& group) {
    EXPECT_EQ(parallel::agree_seed(group)(17), 17U);
    const std::string text = text_of<InvalidArgument>([&] { parallel::agree_seed(group)(rank == 2 ? 5 : 17); });
    EXPECT_TRUE(has(text, "rank 0 has 17, rank 2 has 5")) << text;
  });
}

}  // namespace
