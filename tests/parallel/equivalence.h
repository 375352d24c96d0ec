#pragma once

#include <cmath>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "ddp/nn/conv.h"
#include "ddp/nn/linear.h"
#include "parallel/models.h"

/// Training of small models that gives the same parameters, but for rounding, whether N ranks train with batch B each
/// or one process with batch N * B.
namespace ddp::test {

using parallel::DDPOptions;

inline constexpr std::int64_t kBatch = 4;  // of each rank
inline constexpr int kSteps = 20;
inline constexpr double kRate = 0.1;
inline constexpr double kMomentum = 0.9;

// Numbers that depend only on the seed: every rank and the single process make the same.
inline Tensor random_tensor(const Dims& sizes, DType dtype, std::mt19937_64& random, double scale) {
  std::uniform_real_distribution<double> uniform(-scale, scale);
  std::vector<double> values(static_cast<std::size_t>(sizes.product()));
  for (double& value : values) value = uniform(random);
  return put(to(tensor(values, sizes), dtype));
}

inline void initialise(nn::Module& module, unsigned seed) {
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

inline Values values_of(const std::vector<Tensor>& tensors) {
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

inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

template <class M>
Result train_alone(int ranks, DType dtype, int steps) {
  const auto made = make_module<M>(dtype);
  M& module = *made;
  initialise(module, 7);
  Single<M> single{module};
  return train(module, single, ranks, 0, dtype, steps);
}

}  // namespace ddp::test
