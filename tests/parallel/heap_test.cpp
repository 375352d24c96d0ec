// What a training step takes from the heap once it runs steadily. Tensors' numbers come from the caching allocator, the
// small objects around them from thread-local pools, and what a backward needs is kept from the one before.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>

#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/nn/nn.h"
#include "ddp/optim/optim.h"
#include "ddp/parallel/distributed_data_parallel.h"
#include "ddp/tensor/random.h"
#include "support/heap_count.h"
#include "support/ranks.h"

namespace ddp {
namespace {

constexpr int kWarmUp = 5;
constexpr int kSteps = 20;

std::shared_ptr<nn::Sequential> mlp() {
  return std::make_shared<nn::Sequential>(std::make_shared<nn::Linear>(12, 16), std::make_shared<nn::ReLU>(),
                                          std::make_shared<nn::Linear>(16, 16), std::make_shared<nn::ReLU>(),
                                          std::make_shared<nn::Linear>(16, 5));
}

struct Batch {
  Tensor x = rand({8, 12});
  Tensor target = tensor<std::int64_t>({0, 1, 2, 3, 4, 0, 1, 2});
};

/// Allocations of `kSteps` calls, once they have been made a few times.
template <class Step>
std::int64_t steady_allocations(const Step& step) {
  set_num_threads(1);
  for (int i = 0; i < kWarmUp; ++i) step();
  const std::int64_t before = test::own_heap_allocations();
  for (int i = 0; i < kSteps; ++i) step();
  return test::own_heap_allocations() - before;
}

template <class Model>
std::int64_t training_allocations(Model& model, optim::Optimizer& optimizer) {
  const Batch batch;
  return steady_allocations([&] {
    optimizer.zero_grad();
    cross_entropy(model(batch.x), batch.target).backward();
    optimizer.step();
  });
}

TEST(Heap, TheCountCounts) {
  EXPECT_EQ(steady_allocations([] { std::make_unique<std::int64_t>(1).reset(); }), kSteps);
  EXPECT_EQ(steady_allocations([] { std::make_unique<std::int64_t[]>(100).reset(); }), kSteps);
}

TEST(Heap, ATrainingStepTakesNothing) {
  const auto net = mlp();
  optim::SGD sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9});
  EXPECT_EQ(training_allocations(*net, sgd), 0);
  optim::AdamW adam(net->parameters());
  EXPECT_EQ(training_allocations(*net, adam), 0);
}

TEST(Heap, EvaluationTakesNothing) {
  const auto net = mlp();
  const Batch batch;
  EXPECT_EQ(steady_allocations([&] {
              const NoGradGuard no_grad;
              count_correct((*net)(batch.x), batch.target);
            }),
            0);
}

TEST(Heap, OperationsTakeNothing) {
  const Tensor a = rand({3, 4}).set_requires_grad();
  const Tensor b = rand({3, 4}).set_requires_grad();
  const Tensor row = rand({4}).set_requires_grad();
  EXPECT_EQ(steady_allocations([&] {
              Tensor y = sigmoid(a * b + row) / (exp(b) + 2.0);  // [3, 4]
              y = transpose(y, 0, 1) - sum(y, {1});
              y = matmul(softmax(y, -1), a);
              mean(y).backward();
              for (Tensor leaf : {a, b, row}) leaf.zero_grad();
            }),
            0);
}

// A backward within a backward has a workspace of its own, which is kept too.
TEST(Heap, AGraphThatIsUsedTwiceTakesNothing) {
  const auto net = mlp();
  const Batch batch;
  EXPECT_EQ(steady_allocations([&] {
              net->zero_grad();
              const Tensor loss = cross_entropy((*net)(batch.x), batch.target);
              loss.backward({}, true);
              loss.backward();
            }),
            0);
}

TEST(Heap, DdpAloneTakesNothing) {
  const auto net = mlp();
  parallel::DistributedDataParallel model(net, comm::init_local_groups({Device::cpu()}).front());
  optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
  EXPECT_EQ(training_allocations(model, sgd), 0);
}

// What is left belongs to the exchange: the end-of-backward callback, the label and the Work of the collective, its
// place at the ranks' meeting and with the watchdog, the status word as the host reads it. One bucket here.
TEST(Heap, DdpOfTwoRanksTakesLittle) {
  constexpr int kRanks = 2;
  constexpr int kMostPerStep = 16;
  std::barrier meeting(kRanks);
  std::int64_t taken = 0;
  set_num_threads(1);
  test::run_ranks(kRanks, [&](int rank, const std::shared_ptr<comm::ProcessGroup>& group) {
    parallel::DistributedDataParallel model(mlp(), group);
    optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
    const Batch batch;
    const auto step = [&] {
      sgd.zero_grad();
      cross_entropy(model(batch.x), batch.target).backward();
      sgd.step();
    };
    for (int i = 0; i < kWarmUp; ++i) step();
    meeting.arrive_and_wait();
    if (rank == 0) taken = -test::heap_allocations();
    meeting.arrive_and_wait();
    for (int i = 0; i < kSteps; ++i) step();
    meeting.arrive_and_wait();
    if (rank == 0) taken += test::heap_allocations();
  });
  EXPECT_GT(taken, 0);
  EXPECT_LE(taken, kRanks * kSteps * kMostPerStep);
}

}  // namespace
}  // namespace ddp
