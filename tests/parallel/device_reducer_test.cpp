// What is different on CUDA groups: nothing waits on the host, so streams must be in order, and a bad pass must be
// refused by the device before any host knows of it.
#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <stdexcept>

#include "ddp/autograd/function.h"
#include "ddp/optim/sgd.h"
#include "parallel/models.h"
#include "parallel/status_word.h"
#include "parallel/verdicts.h"

namespace {

using namespace ddp;
using namespace ddp::test;
using parallel::Reducer;
using parallel::Status;
using parallel::StatusSum;

constexpr Device kGpu = Device::cuda(0);

// Some 20 ms of work on the current stream, so that the host is far ahead of what follows.
void delay() {
  static const Tensor large = empty({64 << 20}, {DType::float32, kGpu});
  Tensor x = large;
  for (int i = 0; i < 200; ++i) x.fill_(i);
}

void fill(const Reducer& reducer, std::size_t slot, double value) {
  Tensor gradient = reducer.gradient(slot);
  gradient.fill_(value);
}

void expect_all(const Tensor& tensor, double value) {
  for (const double element : tensor.to_vector<double>()) ASSERT_EQ(element, value);
}

// --- the status word ---

class DeviceStatus : public testing::TestWithParam<DType> {};

TEST_P(DeviceStatus, IsWrittenAsOnTheHost) {
  const std::vector<Status> all = {{}, {.fault = true, .digest = 0xdeadbeefU}, {.abandoned = true, .digest = 77}};
  for (const Status& status : all) {
    for (const int rank : {0, 1, 4711, 65535}) {
      const Tensor host = empty({parallel::kStatusElements}, {GetParam()});
      const Tensor device = empty({parallel::kStatusElements}, {GetParam(), kGpu});
      parallel::write_status(host, status, rank);
      parallel::write_status(device, status, rank);
      EXPECT_EQ(device.to_vector<double>(), host.to_vector<double>());
    }
  }
}

TEST_P(DeviceStatus, IsJudgedAsOnTheHost) {
  struct Case {
    int size;
    std::vector<std::pair<int, Status>> said;  // by rank; the others agree with the first
  };
  const std::vector<Case> cases = {
      {2, {{0, {.digest = 5}}, {1, {.digest = 5}}}},
      {3, {{0, {.digest = 5}}, {2, {.fault = true, .digest = 5}}}},
      {7, {{0, {.digest = 5}}, {6, {.digest = 5U | (1U << 31U)}}}},
      {5, {{0, {.digest = 9}}, {4, {.abandoned = true, .digest = 9}}}},
      {5, {{0, {.abandoned = true, .digest = 9}}, {4, {.abandoned = true, .digest = 9}}}},
      {5000, {{0, {.digest = 9}}, {4711, {.fault = true, .abandoned = true, .digest = 10}}}},
  };
  std::uint32_t pass = 0;
  for (const Case& one : cases) {
    for (const bool scale_first : {false, true}) {
      const double reciprocal = full({1}, 1.0 / one.size, {GetParam()}).to_vector<double>()[0];
      Tensor average = zeros({parallel::kStatusElements}, {GetParam()});
      for (const auto& [rank, status] : one.said) {
        Tensor word = empty({parallel::kStatusElements}, {GetParam()});
        parallel::write_status(word, status, rank);
        if (scale_first) word.mul_(reciprocal);
        average.add_(word);
      }
      if (!scale_first) average.mul_(1.0 / one.size);
      const StatusSum expected = parallel::read_status(average, one.size);
      parallel::Verdicts verdicts(kGpu);
      verdicts.judge(to(average, kGpu), one.size, ++pass);
      synchronize(kGpu);
      const auto verdict = verdicts.look();
      EXPECT_EQ(verdict.pass, pass);
      EXPECT_EQ(verdict.bad, !expected.healthy()) << one.size;
      EXPECT_EQ(verdict.status, expected) << one.size;
    }
  }
}

TEST_P(DeviceStatus, ABadVerdictHoldsUntilItIsCleared) {
  const Tensor good = empty({parallel::kStatusElements}, {GetParam(), kGpu});
  const Tensor bad = empty({parallel::kStatusElements}, {GetParam(), kGpu});
  const Tensor nothing =
      full({parallel::kStatusElements}, std::numeric_limits<double>::quiet_NaN(), {GetParam(), kGpu});
  parallel::write_status(good, {.digest = 1}, 0);
  parallel::write_status(bad, {.fault = true, .digest = 1}, 0);
  parallel::Verdicts verdicts(kGpu);
  const auto expect = [&](std::uint32_t pass, bool is_bad) {
    synchronize(kGpu);
    EXPECT_EQ(verdicts.look().pass, pass);
    EXPECT_EQ(verdicts.look().bad, is_bad);
  };
  verdicts.judge(good, 1, 1);
  expect(1, false);
  verdicts.judge(bad, 1, 2);
  verdicts.judge(good, 1, 3);
  expect(2, true);
  verdicts.clear();
  verdicts.judge(good, 1, 4);
  expect(4, false);
  verdicts.judge(nothing, 1, 5);
  expect(5, true);
}

TEST_P(DeviceStatus, IsBadOnceTheGroupHasFailed) {
  const Tensor good = empty({parallel::kStatusElements}, {GetParam(), kGpu});
  parallel::write_status(good, {.digest = 1}, 0);
  parallel::Verdicts verdicts(kGpu);
  std::uint64_t* failed = raw::take_host_word(kGpu);
  verdicts.judge(good, 1, 1, failed);
  synchronize(kGpu);
  EXPECT_FALSE(verdicts.look().bad);
  delay();
  verdicts.judge(good, 1, 2, failed);
  std::atomic_ref<std::uint64_t>(*failed).store(1);  // while the launch waits
  synchronize(kGpu);
  EXPECT_EQ(verdicts.look().pass, 2U);
  EXPECT_TRUE(verdicts.look().bad);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DeviceStatus,
                         testing::Values(DType::float32, DType::float64, DType::float16, DType::bfloat16),
                         [](const auto& info) { return to_string(info.param); });

// --- order of streams ---

// B13: a side stream that is far behind the host writes the gradients, sums are read on it, 100 times.
TEST(Streams, SumsComeAfterTheirGradientsAndBeforeTheirReaders) {
  on_ranks(2, [](int rank, const auto& group) {
    const Stream side(kGpu);
    Reducer reducer(group, make_slots({1000, 1000, 1000}), {.bucket_cap_bytes = {4000}});
    std::vector<Tensor> read;
    for (int step = 0; step < 100; ++step) {
      const StreamGuard guard(side);
      reducer.prepare();
      if (step % 10 == 0) delay();
      for (std::size_t slot = 3; slot-- > 0;) {
        fill(reducer, slot, 2.0 * rank + step + static_cast<double>(slot));
        reducer.mark_ready(slot);
      }
      reducer.finish();
      read.push_back(add(reducer.gradient(1), 0.0));
    }
    const StreamGuard guard(side);
    for (int step = 0; step < 100; ++step) expect_all(read[static_cast<std::size_t>(step)], 2.0 + step);
  });
}

TEST(Streams, BucketWrittenByTwoStreamsAndReadOnAThird) {
  on_ranks(2, [](int rank, const auto& group) {
    const Stream one(kGpu);
    const Stream two(kGpu);
    const Stream third(kGpu);
    Reducer reducer(group, make_slots({500, 500, 500, 500}), {.bucket_cap_bytes = {4000}});
    for (int step = 0; step < 6; ++step) {
      reducer.prepare();
      for (std::size_t slot = 4; slot-- > 0;) {
        const Stream& stream = slot % 2 == 0 ? one : two;
        const StreamGuard guard(stream);
        if (slot == static_cast<std::size_t>(step) % 4) delay();
        fill(reducer, slot, 2.0 * rank + step + static_cast<double>(slot));
        // Told from outside the stream, as a program with streams of its own does.
        const StreamGuard other(third);
        reducer.mark_ready(slot, stream);
      }
      const StreamGuard guard(third);
      reducer.finish();
      std::vector<Tensor> read;
      for (std::size_t slot = 0; slot < 4; ++slot) read.push_back(add(reducer.gradient(slot), 0.0));
      for (std::size_t slot = 0; slot < 4; ++slot) {
        expect_all(read[slot], 1.0 + step + static_cast<double>(slot));
      }
    }
  });
}

// y = w * x whose backward is far behind the host when it writes the gradient.
class Slow : public Scale {
 public:
  Tensor forward(double x) {
    const Tensor late = apply_function(
        "late", {w}, [](FunctionContext&, const std::vector<Tensor>& in) { return std::vector<Tensor>{clone(in[0])}; },
        [this](FunctionContext&, const std::vector<Tensor>& grads) {
          if (slow) delay();
          if (fail) throw std::runtime_error("bad sample 43");
          return grads;
        })[0];
    return mul(late, x);
  }
  bool slow = false;
  bool fail = false;
};

TEST(Streams, BackwardOnASideStream) {
  on_ranks(2, [](int rank, const auto& group) {
    const Stream side(kGpu);
    auto module = std::make_shared<Slow>();
    module->to(kGpu);
    parallel::DistributedDataParallel<Slow> model(module, group);
    std::vector<Tensor> read;
    const StreamGuard guard(side);
    for (int step = 0; step < 100; ++step) {
      module->slow = step % 10 == 0;
      model.zero_grad();
      run_backward(model(2.0 * rank + step));
      read.push_back(add(module->w.grad(), 0.0));
    }
    for (int step = 0; step < 100; ++step) EXPECT_EQ(value_of(read[static_cast<std::size_t>(step)]), 1.0 + step);
    model.verify();
  });
}

// --- bad passes ---

// What every rank is told, whenever that is.
std::string told(const std::function<void()>& body) { return text_of<ReductionError>(body); }

TEST(Refusal, MissingGradientChangesNoParameterOnAnyRank) {
  const int size = 3;
  std::vector<std::string> texts(size);
  on_ranks(size, [&](int rank, const auto& group) {
    auto module = std::make_shared<Two>(7, 8);
    module->to(kGpu);
    parallel::DistributedDataParallel<Two> model(module, group);
    optim::SGD optimizer(model.parameters(), {.lr = 0.5, .momentum = 0.9});
    run_backward(model(2.0 * rank));
    optimizer.step();
    model.verify();
    const double a = value_of(module->a);
    const double b = value_of(module->b);
    EXPECT_EQ(a, 7 - 0.5 * 2);
    module->use_b = rank != 1;
    texts[static_cast<std::size_t>(rank)] = told([&] {
      optimizer.zero_grad();
      const Tensor y = model(3.0);
      delay();  // the others' host must not have seen the verdict before it queues the update
      run_backward(y);
      EXPECT_NE(rank, 1) << "the rank at fault knows at once";
      optimizer.step();
      model.verify();
    });
    EXPECT_EQ(value_of(module->a), a);
    EXPECT_EQ(value_of(module->b), b);
    // It goes on, with the update that was refused gone without a trace.
    module->use_b = true;
    optimizer.zero_grad();
    run_backward(model(2.0 * rank));
    expect_all(module->a.grad(), 2);
    optimizer.step();
    model.verify();
    EXPECT_LT(value_of(module->a), a);
    // Neither where it was refused nor where it was never asked for does it count.
    EXPECT_EQ(optimizer.state()[0].step, 2) << "rank " << rank;
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(has(text, "'b' got no gradient on rank 1")) << text;
    EXPECT_EQ(text, texts[0]);
  }
}

// A rank that goes on to further passes before it hears of the bad one.
TEST(Refusal, RanksMeetWhereverTheyNotice) {
  const int size = 3;
  std::vector<std::string> texts(size);
  on_ranks(size, [&](int rank, const auto& group) {
    Reducer reducer(group, make_slots({64, 64}), {.bucket_cap_bytes = {256}});
    const auto pass = [&](bool whole, double value) {
      reducer.prepare();
      for (std::size_t slot = 2; slot-- > 0;) {
        if (slot == 0 && !whole) continue;
        fill(reducer, slot, value);
        reducer.mark_ready(slot);
      }
      reducer.finish();
    };
    for (int step = 0; step < 3; ++step) pass(true, 3.0 * rank);
    texts[static_cast<std::size_t>(rank)] = told([&] {
      if (rank != 2) delay();
      pass(rank != 2, 1);
      for (int step = 0; step < 3; ++step) pass(true, 1);
      reducer.verify();
    });
    for (int step = 0; step < 5; ++step) pass(true, 3.0 * rank + step);
    reducer.verify();
    expect_all(reducer.gradient(0), 3.0 + 4);
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(has(text, "'p0' got no gradient on rank 2")) << text;
    EXPECT_EQ(text, texts[0]);
  }
}

TEST(Refusal, RankThatGivesUpIsNamedAndNobodyUpdates) {
  on_ranks(3, [](int rank, const auto& group) {
    auto module = std::make_shared<Slow>();
    module->to(kGpu);
    parallel::DistributedDataParallel<Slow> model(module, group);
    optim::SGD optimizer(model.parameters(), {.lr = 0.5});
    for (int round = 0; round < 3; ++round) {
      optimizer.zero_grad();
      module->slow = true;
      module->fail = rank == round;
      const double before = value_of(module->w);
      const Tensor y = model(2.0 * rank);
      if (rank == round) {
        EXPECT_EQ(text_of<std::runtime_error>([&] { run_backward(y); }), "bad sample 43");
        optimizer.step();  // refused here as well
      } else {
        const std::string text = told([&] {
          run_backward(y);
          optimizer.step();
          model.verify();
        });
        EXPECT_TRUE(has(text, concat("rank ", round, " left backward by an exception"))) << text;
      }
      EXPECT_EQ(value_of(module->w), before);
      module->fail = module->slow = false;
      optimizer.zero_grad();
      run_backward(model(2.0 * rank));
      optimizer.step();
      model.verify();
      EXPECT_EQ(value_of(module->w), before - 0.5 * 2);
      EXPECT_EQ(optimizer.state()[0].step, round + 1) << "rank " << rank;
    }
  });
}

TEST(Refusal, ReachesUpdatesOnAnyStreamThatWroteGradients) {
  on_ranks(2, [](int rank, const auto& group) {
    const Stream writer(kGpu);
    const Stream closer(kGpu);
    Reducer reducer(group, make_slots({64, 64}), {.bucket_cap_bytes = {256}});
    Tensor parameter = full({64}, 5, {DType::float32, kGpu});
    parameter.set_requires_grad();
    parameter.set_grad(reducer.gradient(1));
    ASSERT_EQ(parameter.grad().data(), reducer.gradient_data(1));
    optim::SGD optimizer({parameter}, {.lr = 1});
    synchronize(kGpu);
    const std::string text = told([&] {
      reducer.prepare();
      {
        const StreamGuard guard(writer);
        for (std::size_t slot = 2; slot-- > 0;) {
          if (slot == 0 && rank == 1) continue;
          fill(reducer, slot, 1);
          reducer.mark_ready(slot);
        }
      }
      {
        const StreamGuard guard(closer);
        if (rank == 0) delay();  // the sums are there long before the verdict on them
        reducer.finish();
        EXPECT_EQ(rank, 0) << "the rank at fault knows at once";
      }
      const StreamGuard guard(writer);
      optimizer.step();
      reducer.verify();
    });
    EXPECT_TRUE(has(text, "'p0' got no gradient on rank 1")) << text;
    synchronize(kGpu);
    expect_all(parameter.detach(), 5);
    EXPECT_EQ(optimizer.state()[0].step, 0);
  });
}

TEST(Exposed, WaitingOfTheStreamIsCountedWhenItHasPassed) {
  on_ranks(2, [](int, const auto& group) {
    Reducer reducer(group, make_slots({1 << 20}));
    for (int step = 0; step < 3; ++step) {
      reducer.prepare();
      fill(reducer, 0, 1);
      reducer.mark_ready(0);
      reducer.finish();
    }
    synchronize(kGpu);
    EXPECT_GT(reducer.counters().exposed_ms, 0.0);
    EXPECT_LT(reducer.counters().exposed_ms, 60'000.0);
  });
}

}  // namespace
