#include "ddp/optim/lr_scheduler.h"

#include <cmath>

#include "ddp/core/error.h"
#include "ddp/optim/sgd.h"
#include "support/expect_error.h"

namespace ddp::optim {
namespace {

using test::expect_error;

SGD make(double lr = 0.5, double second = 2) {
  return SGD(std::vector<SGDGroup>{{{zeros({1})}, {.lr = lr}}, {{zeros({1})}, {.lr = second}}});
}

/// Rates of group 0 at epochs 0, 1, ..., count-1.
std::vector<double> rates(Optimizer& optimizer, LRScheduler& scheduler, int count) {
  std::vector<double> result;
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(scheduler.epoch(), i);
    result.push_back(optimizer.learning_rate(0));
    scheduler.step();
  }
  return result;
}

TEST(StepLR, FallsAtEachStepSize) {
  SGD optimizer = make();
  StepLR scheduler(optimizer, 3, 0.5);
  EXPECT_EQ(rates(optimizer, scheduler, 7), (std::vector<double>{0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125}));
  EXPECT_EQ(optimizer.learning_rate(1), 0.5);  // 2 * 0.5^2 at epoch 7
  expect_error<InvalidArgument>([&] { StepLR(optimizer, 0); }, {"step_size is 0"});
}

TEST(CosineAnnealingLR, GoesDownHalfAWave) {
  SGD optimizer = make(1.0);
  CosineAnnealingLR scheduler(optimizer, 6, 0.25);
  const auto got = rates(optimizer, scheduler, 7);
  const double root = std::sqrt(3.0) / 2;
  const double wave[] = {1, root, 0.5, 0, -0.5, -root, -1};
  for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(got[i], 0.25 + 0.75 * (1 + wave[i]) / 2, 1e-15);
  expect_error<InvalidArgument>([&] { CosineAnnealingLR(optimizer, 0); }, {"t_max is 0"});
}

TEST(LinearLR, WarmsUpAndStays) {
  SGD optimizer = make(2.0);
  LinearLR scheduler(optimizer, {.start_factor = 0.25, .total_iters = 3});
  EXPECT_EQ(rates(optimizer, scheduler, 6), (std::vector<double>{0.5, 1, 1.5, 2, 2, 2}));
  expect_error<InvalidArgument>([&] { LinearLR(optimizer, {.start_factor = 0}); }, {"start_factor is 0", "(0, 1]"});
  expect_error<InvalidArgument>([&] { LinearLR(optimizer, {.end_factor = 2}); }, {"end_factor is 2"});
  expect_error<InvalidArgument>([&] { LinearLR(optimizer, {.total_iters = 0}); }, {"total_iters is 0"});
}

TEST(SequentialLR, WarmUpThenCosine) {
  SGD optimizer = make(1.0);
  const auto warm_up = std::make_shared<LinearLR>(optimizer, LinearLROptions{.start_factor = 0.5, .total_iters = 2});
  const auto cosine = std::make_shared<CosineAnnealingLR>(optimizer, 4);
  SequentialLR scheduler(optimizer, {warm_up, cosine}, {2});
  const auto got = rates(optimizer, scheduler, 7);
  const double half = std::sqrt(0.5);
  const double expected[] = {0.5, 0.75, 1, (1 + half) / 2, 0.5, (1 - half) / 2, 0};
  for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(got[i], expected[i], 1e-15);
  expect_error<InvalidArgument>([&] { SequentialLR(optimizer, {warm_up, cosine}, {}); }, {"2 schedulers", "given 0"});
  expect_error<InvalidArgument>([&] { SequentialLR(optimizer, {warm_up, cosine, cosine}, {3, 3}); }, {"milestone 3"});
}

TEST(LRScheduler, ResumesAtAnyEpoch) {
  SGD optimizer = make();
  StepLR scheduler(optimizer, 1, 0.5);
  scheduler.set_epoch(4);
  EXPECT_EQ(optimizer.learning_rate(0), 0.03125);
  scheduler.step();
  EXPECT_EQ(optimizer.learning_rate(0), 0.015625);
  expect_error<InvalidArgument>([&] { scheduler.set_epoch(-1); }, {"-1"});
}

}  // namespace
}  // namespace ddp::optim
