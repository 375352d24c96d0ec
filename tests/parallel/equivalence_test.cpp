// N ranks with batch B each train as one process with batch N * B.
#include "parallel/equivalence.h"
#include "ddp/trace/recorder.h"

namespace {

using namespace ddp;
using namespace ddp::test;

template <class M>
std::vector<Result> train_on_ranks(int size, DType dtype, int steps, const DDPOptions& options) {
  std::vector<Result> results(static_cast<std::size_t>(size));
  on_ranks(size, [&](int rank, const auto& group) {
    auto module = make_module<M>(dtype);
    initialise(*module, 7U + static_cast<unsigned>(rank));  // rank 0's count
    parallel::DistributedDataParallel<M> model(module, group, options);
    Wrapped<M> wrapped{model};
    results[static_cast<std::size_t>(rank)] = train(*module, wrapped, size, rank, dtype, steps);
  });
  return results;
}

template <class M>
class Equivalence : public testing::Test {};
using Models = testing::Types<Mlp, Cnn>;
TYPED_TEST_SUITE(Equivalence, Models);

TYPED_TEST(Equivalence, Float64AfterTwentySteps) {
  for (const int size : {2, 3, 4}) {
    for (const bool views : {true, false}) {
      // Several buckets, so that plan, lanes and re-plan all take part.
      const auto results = train_on_ranks<TypeParam>(
          size, DType::float64, kSteps, {.bucket_cap_bytes = {1500}, .gradient_as_bucket_view = views, .lanes = 2});
      const Result alone = train_alone<TypeParam>(size, DType::float64, kSteps);
      for (std::size_t i = 0; i < alone.parameters.size(); ++i) {
        // 20 steps of sums in another order: 1e-12 leaves room for some 5000 roundings of 2e-16.
        EXPECT_LT(relative_error(results[0].parameters[i], alone.parameters[i]), 1e-12) << size << " ranks, " << i;
      }
      for (const Result& result : results) EXPECT_EQ(result.parameters, results[0].parameters);
    }
  }
}

TYPED_TEST(Equivalence, Float32GradientsOfTheFirstStep) {
  for (const int size : {2, 3, 4}) {
    const auto results = train_on_ranks<TypeParam>(size, DType::float32, 3, {.bucket_cap_bytes = {600}});
    const Result alone = train_alone<TypeParam>(size, DType::float32, 1);
    for (std::size_t i = 0; i < alone.first_gradients.size(); ++i) {
      EXPECT_LT(relative_error(results[0].first_gradients[i], alone.first_gradients[i]), 1e-5)
          << size << " ranks, " << i;
    }
    for (const Result& result : results) EXPECT_EQ(result.parameters, results[0].parameters);
  }
}

// Neither caps nor the re-plan change a bit: sums are over ranks in one order, element by element.
TYPED_TEST(Equivalence, BitsDoNotDependOnTheCaps) {
  const auto small = train_on_ranks<TypeParam>(3, DType::float32, 5, {.bucket_cap_bytes = {1}});
  const auto large = train_on_ranks<TypeParam>(3, DType::float32, 5, {.bucket_cap_bytes = {1 << 30}, .rebuild = false});
  EXPECT_EQ(small[0].parameters, large[0].parameters);
}

// Layers write their gradients into the buckets: nothing is copied, in any step, re-plan or not.
TYPED_TEST(Equivalence, NothingIsCopiedWithViewsAndAllOfItTwiceWithout) {
  for (const bool views : {true, false}) {
    on_ranks(2, [&](int rank, const auto& group) {
      auto module = make_module<TypeParam>(DType::float32);
      parallel::DistributedDataParallel<TypeParam> model(module, group,
                                                         {.bucket_cap_bytes = {600}, .gradient_as_bucket_view = views});
      std::uint64_t bytes = 0;
      for (const Tensor& parameter : module->parameters()) bytes += static_cast<std::uint64_t>(parameter.nbytes());
      const auto before = trace::total(trace::Counter::gradient_bytes_copied);
      for (int step = 0; step < 4; ++step) {
        model.zero_grad();
        const Batch batch = rows<TypeParam>(step, 2 * kBatch, rank * kBatch, kBatch, DType::float32);
        cross_entropy(model(batch.input), batch.target).backward();
      }
      EXPECT_EQ(model.counters().bytes_copied, views ? 0 : 4 * 2 * bytes);
      EXPECT_EQ(model.counters().rebuilds, 1U);
      if (views) {
        EXPECT_EQ(trace::total(trace::Counter::gradient_bytes_copied), before);
      }
    });
  }
}

// B08 C, default: the mean of the ranks' means, not of all samples.
TEST(UnequalBatches, EveryRankCountsTheSame) {
  on_ranks(2, [](int rank, const auto& group) {
    auto module = std::make_shared<Scale>();
    auto model = wrap(module, group);
    const Tensor x = put(rank == 0 ? tensor({2.0F, 2.0F, 2.0F, 2.0F}) : tensor({7.0F}));
    mean(model(x)).backward();
    EXPECT_EQ(value_of(module->w.grad()), 4.5);
  });
}

}  // namespace
