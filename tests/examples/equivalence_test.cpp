// The example models in full size: N ranks with batch B each train as one process with batch N * B.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <random>

#include "models/cnn.h"
#include "models/mlp.h"
#include "support/ranks.h"

namespace {

using namespace ddp;

constexpr std::int64_t kBatch = 6;  // of each rank
constexpr int kSteps = 20;

/// The same numbers on every rank and in the single process.
data::Batch make_batch(int step, std::int64_t count, DType dtype) {
  std::mt19937_64 random(300U + static_cast<unsigned>(step));
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> pixels(static_cast<std::size_t>(count * 784));
  for (float& pixel : pixels) pixel = uniform(random);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
  for (std::int64_t& label : labels) label = static_cast<std::int64_t>(random() % 10);
  return {to(tensor(pixels, {count, 1, 28, 28}), dtype), tensor(labels, {count})};
}

/// Modules draw their first values from the device's generator, which ranks that are threads share.
template <class M>
std::shared_ptr<M> make_model(std::uint64_t seed, DType dtype) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  manual_seed(seed);
  auto model = std::make_shared<M>();
  model->to(dtype);
  return model;
}

using Values = std::vector<std::vector<double>>;  // of each parameter
struct Result {
  Values first_gradients;
  Values parameters;
};

Values values_of(const nn::Module& module) {
  Values values;
  for (const Tensor& one : module.parameters()) values.push_back(one.to_vector<double>());
  return values;
}

template <class Forward>
Result train(nn::Module& module, const Forward& forward, DType dtype, std::int64_t global, std::int64_t first,
             std::int64_t count) {
  optim::SGD optimizer(module.parameters(), {.lr = 0.05, .momentum = 0.9});
  Result result;
  for (int step = 0; step < kSteps; ++step) {
    const data::Batch all = make_batch(step, global, dtype);
    optimizer.zero_grad();
    cross_entropy(forward(contiguous(slice(all.input, 0, first, first + count))),
                  contiguous(slice(all.target, 0, first, first + count)))
        .backward();
    if (step == 0) {
      for (const Tensor& one : module.parameters()) result.first_gradients.push_back(one.grad().to_vector<double>());
    }
    optimizer.step();
  }
  result.parameters = values_of(module);
  return result;
}

template <class M>
std::vector<Result> train_ranks(int size, DType dtype) {
  std::vector<Result> results(static_cast<std::size_t>(size));
  const auto body = [&](int rank, const std::shared_ptr<comm::ProcessGroup>& group) {
    auto model = make_model<M>(9U + static_cast<unsigned>(rank), dtype);  // rank 0's counts
    parallel::DistributedDataParallel<M> replica(model, group, {.bucket_cap_bytes = {1 << 20}, .lanes = 2});
    results[static_cast<std::size_t>(rank)] =
        train(*model, [&](const Tensor& x) { return replica(x); }, dtype, size * kBatch, rank * kBatch, kBatch);
    EXPECT_EQ(replica.counters().bytes_copied, 0U);
    EXPECT_GT(replica.counters().launched_before_last, 0U);
  };
  test::run_ranks(size, body, {.backend = DDP_TEST_GLOO ? "gloo" : "local"});
  for (const Result& result : results) EXPECT_EQ(result.parameters, results[0].parameters) << "ranks differ";
  return results;
}

template <class M>
Result train_alone(int size, DType dtype) {
  auto model = make_model<M>(9, dtype);
  return train(*model, [&](const Tensor& x) { return model->forward(x); }, dtype, size * kBatch, 0, size * kBatch);
}

/// The largest ||a - b|| / ||b|| of any parameter.
double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  for (std::size_t p = 0; p < b.size(); ++p) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < b[p].size(); ++i) {
      difference += (a[p][i] - b[p][i]) * (a[p][i] - b[p][i]);
      norm += b[p][i] * b[p][i];
    }
    const double relative = std::sqrt(difference / norm);
    if (!(relative <= largest)) largest = relative;  // a NaN stays
  }
  return largest;
}

template <class M>
class ExampleModel : public testing::Test {};
using Models = testing::Types<examples::Mlp, examples::Cnn>;
TYPED_TEST_SUITE(ExampleModel, Models);

TYPED_TEST(ExampleModel, RanksTrainAsOneProcess) {
  for (const int size : {2, 3, 4}) {
    const Result double_ranks = train_ranks<TypeParam>(size, DType::float64)[0];
    const Result double_alone = train_alone<TypeParam>(size, DType::float64);
    const double doubles = largest_difference(double_ranks.parameters, double_alone.parameters);
    // 20 steps of sums in another order: room for some 5000 roundings of 2e-16.
    EXPECT_LT(doubles, 1e-12) << size << " ranks";
    const Result float_ranks = train_ranks<TypeParam>(size, DType::float32)[0];
    const Result float_alone = train_alone<TypeParam>(size, DType::float32);
    const double gradients = largest_difference(float_ranks.first_gradients, float_alone.first_gradients);
    EXPECT_LT(gradients, 1e-5) << size << " ranks";
    std::printf("%s, %d ranks: float64 after %d steps %.2e; float32 gradients of step 1 %.2e, after %d steps %.2e\n",
                TypeParam::kName, size, kSteps, doubles, gradients, kSteps,
                largest_difference(float_ranks.parameters, float_alone.parameters));
    // Weights that hardly move would be equal whatever the gradients are.
    const Values start = values_of(*make_model<TypeParam>(9, DType::float64));
    EXPECT_GT(largest_difference(double_alone.parameters, start), 1e-2);
  }
}

}  // namespace
