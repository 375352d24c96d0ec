// N ranks with batch B each train as one process with batch N * B.
#include <cmath>
#include <mutex>
#include <random>

#include "ddp/nn/conv.h"
#include "ddp/nn/linear.h"
#include "ddp/trace/recorder.h"
#include "parallel/models.h"

namespace {

using namespace ddp;
using namespace ddp::test;
using parallel::DDPOptions;

constexpr std::int64_t kBatch = 4;  // of each rank
constexpr int kSteps = 20;
constexpr double kRate = 0.1;
constexpr double kMomentum = 0.9;

// Numbers that depend only on the seed: every rank and the single process make the same.
Tensor random_tensor(const Dims& sizes, DType dtype, std::mt19937_64& random, double scale) {
  std::uniform_real_distribution<double> uniform(-scale, scale);
  std::vector<double> values(static_cast<std::size_t>(sizes.product()));
  for (double& value : values) value = uniform(random);
  return put(to(tensor(values, sizes), dtype));
}

void initialise(nn::Module& module, unsigned seed) {
  std::mt19937_64 random(seed);
  const NoGradGuard guard;
  for (Tensor parameter : module.parameters()) {
    parameter.copy_(random_tensor(parameter.sizes(), parameter.dtype(), random, 0.4));
  }
}

// Modules draw their first values from the device's generator, which ranks that are threads share.
template <class M>
std::shared_ptr<M> make_module(DType dtype) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto module = std::make_shared<M>(dtype);
  module->to(test_device());
  return module;
}

class Mlp : public nn::Module {
 public:
  explicit Mlp(DType dtype)
      : fc1_(register_module("fc1", std::make_shared<nn::Linear>(12, 17, nn::LinearOptions{.dtype = dtype}))),
        fc2_(register_module("fc2", std::make_shared<nn::Linear>(17, 9, nn::LinearOptions{.dtype = dtype}))),
        fc3_(register_module("fc3", std::make_shared<nn::Linear>(9, 5, nn::LinearOptions{.dtype = dtype}))) {}
  static Dims input_sizes(std::int64_t batch) { return {batch, 12}; }
  Tensor forward(const Tensor& x) { return fc3_->forward(relu(fc2_->forward(tanh(fc1_->forward(x))))); }

 private:
  std::shared_ptr<nn::Linear> fc1_, fc2_, fc3_;
};

class Cnn : public nn::Module {
 public:
  explicit Cnn(DType dtype)
      : conv1_(register_module("conv1", std::make_shared<nn::Conv2d>(2, 4, 3, nn::Conv2dOptions{.dtype = dtype}))),
        conv2_(register_module("conv2", std::make_shared<nn::Conv2d>(4, 6, 3, nn::Conv2dOptions{.dtype = dtype}))),
        fc_(register_module("fc", std::make_shared<nn::Linear>(6 * 2 * 2, 5, nn::LinearOptions{.dtype = dtype}))) {}
  static Dims input_sizes(std::int64_t batch) { return {batch, 2, 8, 8}; }
  Tensor forward(const Tensor& x) {
    return fc_->forward(flatten(max_pool2d(relu(conv2_->forward(relu(conv1_->forward(x)))), 2), 1));
  }

 private:
  std::shared_ptr<nn::Conv2d> conv1_, conv2_;
  std::shared_ptr<nn::Linear> fc_;
};

struct Batch {
  Tensor input;
  Tensor target;
};

// Rows [first, first + count) of the global batch of this step.
template <class M>
Batch rows(int step, std::int64_t global, std::int64_t first, std::int64_t count, DType dtype) {
  std::mt19937_64 random(1000U + static_cast<unsigned>(step));
  const Tensor input = random_tensor(M::input_sizes(global), dtype, random, 1.0);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(global));
  for (std::int64_t& label : labels) label = static_cast<std::int64_t>(random() % 5);
  return {contiguous(slice(input, 0, first, first + count)),
          put(tensor(std::vector<std::int64_t>(labels.begin() + first, labels.begin() + first + count), {count}))};
}

// Momentum, so that an error of one step is carried on.
class Momentum {
 public:
  explicit Momentum(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {
    for (const Tensor& parameter : parameters_) velocity_.push_back(zeros(parameter.sizes(), parameter.options()));
  }
  void step() {
    const NoGradGuard guard;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      velocity_[i].mul_(kMomentum).add_(parameters_[i].grad());
      parameters_[i].add_(velocity_[i], -kRate);
    }
  }

 private:
  std::vector<Tensor> parameters_;
  std::vector<Tensor> velocity_;
};

using Values = std::vector<std::vector<double>>;  // of each parameter
struct Result {
  Values first_gradients;
  Values parameters;
};

Values values_of(const std::vector<Tensor>& tensors) {
  Values out;
  for (const Tensor& one : tensors) out.push_back(one.to_vector<double>());
  return out;
}

template <class M, class Model>
Result train(M& module, Model& model, int ranks, int rank, DType dtype, int steps) {
  Momentum optimizer(module.parameters());
  Result result;
  for (int step = 0; step < steps; ++step) {
    module.zero_grad();
    const Batch batch = rows<M>(step, ranks * kBatch, rank * kBatch, model.alone ? ranks * kBatch : kBatch, dtype);
    cross_entropy(model(batch.input), batch.target).backward();
    if (step == 0) {
      std::vector<Tensor> gradients;
      for (const Tensor& parameter : module.parameters()) gradients.push_back(parameter.grad());
      result.first_gradients = values_of(gradients);
    }
    optimizer.step();
  }
  result.parameters = values_of(module.parameters());
  return result;
}

template <class M>
struct Single {
  M& module;
  static constexpr bool alone = true;
  Tensor operator()(const Tensor& x) { return module.forward(x); }
};
template <class M>
struct Wrapped {
  parallel::DistributedDataParallel<M>& model;
  static constexpr bool alone = false;
  Tensor operator()(const Tensor& x) { return model(x); }
};

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

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
Result train_alone(int ranks, DType dtype, int steps) {
  const auto made = make_module<M>(dtype);
  M& module = *made;
  initialise(module, 7);
  Single<M> single{module};
  return train(module, single, ranks, 0, dtype, steps);
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
