#include "common/train.h"

#include <chrono>
#include <cstdlib>
#include <vector>

#include "common/reporter.h"
#include "common/share_sampler.h"
#include "common/step_timer.h"
#include "common/trace_files.h"

namespace examples {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Training and test examples: [0, train_size) and [test_begin, test_end) of the two datasets.
struct Data {
  std::unique_ptr<ddp::data::Dataset> train;
  std::unique_ptr<ddp::data::Dataset> test_owner;
  const ddp::data::Dataset* test = nullptr;
  std::int64_t train_size = 0;
  std::int64_t test_begin = 0;
  std::int64_t test_end = 0;
};

Data open_data(const Options& options) {
  Data data;
  if (options.synthetic) {
    constexpr std::int64_t kTrain = 60000;
    constexpr std::int64_t kTest = 10000;
    data.train = std::make_unique<ddp::data::SyntheticImages>(kTrain + kTest, ddp::Dims{1, 28, 28}, 10);
    data.test = data.train.get();
    data.train_size = kTrain;
    data.test_begin = kTrain;
    data.test_end = kTrain + kTest;
    return data;
  }
  const std::filesystem::path root =
      options.data.empty() ? ddp::data::fashion_mnist_root() : std::filesystem::path(options.data);
  data.train = std::make_unique<ddp::data::FashionMNIST>(root, ddp::data::Split::train);
  data.test_owner = std::make_unique<ddp::data::FashionMNIST>(root, ddp::data::Split::test);
  data.test = data.test_owner.get();
  data.train_size = data.train->size();
  data.test_end = data.test->size();
  return data;
}

/// Adds up over the ranks, in place.
void sum_over_ranks(ddp::comm::ProcessGroup* group, const ddp::Tensor& numbers, const char* label) {
  if (group != nullptr) group->all_reduce(numbers, ddp::comm::ReduceOp::sum, {.label = label}).wait();
}

double test_accuracy(const Trainee& trainee, const Data& data, ddp::comm::ProcessGroup* group, ddp::Device device,
                     ddp::DType dtype) {
  const ddp::NoGradGuard no_grad;
  trainee.module->eval();
  const int size = group != nullptr ? group->size() : 1;
  const int rank = group != nullptr ? group->rank() : 0;
  const ShareSampler share(data.test_begin, data.test_end, size, rank);
  ddp::Tensor correct = ddp::zeros({1}, {ddp::DType::int64, device});
  if (share.size() > 0) {
    const auto batch = std::min<std::int64_t>(500, share.size());
    ddp::data::DataLoader loader(*data.test, share, {.batch_size = batch, .device = device});
    for (const auto& [input, target] : loader) {
      // The bare module: evaluation needs nothing from the other ranks.
      auto* model = dynamic_cast<ddp::nn::UnaryModule*>(trainee.module);
      correct.add_(ddp::count_correct(model->forward(ddp::to(input, dtype)), target));
    }
  }
  trainee.module->train();
  sum_over_ranks(group, correct, "test accuracy");
  return static_cast<double>(correct.item<std::int64_t>()) / static_cast<double>(data.test_end - data.test_begin);
}

Summary summarise(const Options& options, const Trainee& trainee, const ddp::comm::ProcessGroup* group,
                  ddp::Device device, const StepTimer& timer) {
  Summary summary;
  summary.model = trainee.name;
  summary.mode = options.ddp ? "ddp" : "local";
  summary.backend = group != nullptr ? group->backend() : "none";
  summary.device = ddp::to_string(device);
  summary.dtype = options.dtype;
  summary.world_size = group != nullptr ? group->size() : 1;
  summary.threads = device.is_cpu() ? ddp::num_threads(device) : 1;
  summary.batch_size = options.batch_size;
  summary.steps = timer.steps();
  summary.step_ms = timer.typical_ms();
  if (summary.step_ms > 0) {
    summary.samples_per_s = 1000.0 * static_cast<double>(summary.world_size * options.batch_size) / summary.step_ms;
  }
  if (trainee.reducer != nullptr) {
    const ddp::parallel::ReducerCounters counters = trainee.reducer->counters();
    const double passes = std::max<double>(1, static_cast<double>(counters.passes));
    summary.buckets = static_cast<std::int64_t>(trainee.reducer->plan().size());
    summary.collectives = static_cast<std::int64_t>(counters.collectives);
    summary.bytes_reduced = static_cast<std::int64_t>(counters.bytes_reduced);
    summary.bytes_copied = static_cast<std::int64_t>(counters.bytes_copied);
    summary.comm_ms = counters.communication_ms / passes;
    summary.exposed_comm_ms = counters.exposed_ms / passes;
  }
  return summary;
}

}  // namespace

std::shared_ptr<ddp::comm::ProcessGroup> make_group(const Options& options) {
  if (!options.ddp) {
    const char* size = std::getenv("WORLD_SIZE");  // NOLINT(concurrency-mt-unsafe): one thread so far
    DDP_CHECK(size == nullptr || std::string(size) == "1", ddp::InvalidArgument,
              "--mode local trains in this process alone, but WORLD_SIZE is ", size == nullptr ? "" : size,
              ": every rank would train its own model; use --mode ddp");
    return nullptr;
  }
  ddp::comm::InitOptions init;
  if (options.device == "cuda") {
    init.backend = "nccl";  // each rank on its own
  } else if (!options.device.empty()) {
    init.device = ddp::Device::parse(options.device);
  }
  return ddp::comm::init_process_group(init);
}

ddp::Device choose_device(const Options& options, const ddp::comm::ProcessGroup* group) {
  if (group != nullptr) return group->device();
  return options.device.empty() ? ddp::Device::cpu() : ddp::Device::parse(options.device);
}

ddp::parallel::DDPOptions ddp_options(const Options& options) {
  ddp::parallel::DDPOptions result;
  if (options.bucket_cap_mb) result.bucket_cap_bytes = {static_cast<std::int64_t>(*options.bucket_cap_mb * 1048576.0)};
  return result;
}

void run_training(const Options& options, const Trainee& trainee, const std::shared_ptr<ddp::comm::ProcessGroup>& group,
                  ddp::Device device) {
  const int size = group != nullptr ? group->size() : 1;
  const int rank = group != nullptr ? group->rank() : 0;
  const ddp::DType dtype = ddp::parse_dtype(options.dtype);
  const Data data = open_data(options);
  ddp::data::DistributedSamplerOptions shares{.seed = options.seed};
  if (group != nullptr) shares.agree = ddp::parallel::agree_seed(group);
  ddp::data::DistributedSampler sampler(data.train_size, size, rank, shares);
  ddp::data::DataLoader loader(*data.train, sampler,
                               {.batch_size = options.batch_size, .device = device, .drop_last = true});
  ddp::optim::SGD optimizer(trainee.module->parameters(), {.lr = options.lr, .momentum = options.momentum});

  Reporter reporter(rank == 0, options.json);  // after all that can be refused, so that an error leaves no file

  const std::int64_t planned = options.epochs * loader.size();
  const std::int64_t last_step = options.steps > 0 ? std::min(options.steps, planned) : planned;
  const int epochs = static_cast<int>((last_step + loader.size() - 1) / loader.size());
  StepTimer timer(device);
  const TraceFiles trace(options.trace, group.get());
  std::optional<double> accuracy;
  std::int64_t step = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const auto epoch_start = Clock::now();
    sampler.set_epoch(epoch - 1);
    // Losses are added up on the device and read only when a line is due, so that logging never makes a step wait.
    const ddp::Tensor losses = ddp::zeros({2}, {ddp::DType::float64, device});
    ddp::Tensor loss_sum = ddp::zeros({}, {dtype, device});
    std::int64_t steps_of_epoch = 0;
    timer.begin_epoch();
    ddp::trace::begin_step();
    for (const auto& [input, target] : loader) {
      optimizer.zero_grad();
      ddp::Tensor loss;
      {
        const ddp::trace::PhaseSpan span(ddp::trace::SpanKind::forward, device);
        loss = ddp::cross_entropy(trainee.forward(ddp::to(input, dtype)), target);
      }
      loss.backward();
      optimizer.step();
      loss_sum.add_(loss.detach());
      ++step;
      ++steps_of_epoch;
      timer.end_step();
      ddp::trace::begin_step();
      if (reporter.due()) {
        const double recent = timer.recent_ms();
        reporter.progress(epoch, epochs, step, last_step, loss_sum.item<double>() / static_cast<double>(steps_of_epoch),
                          1000.0 * static_cast<double>(size * options.batch_size) / recent,
                          static_cast<double>(last_step - step) * recent / 1000.0);
      }
      if (step == last_step) break;
    }
    timer.end_epoch();
    ddp::slice(losses, 0, 0, 1).copy_(ddp::reshape(loss_sum, {1}));
    ddp::slice(losses, 0, 1, 2).fill_(static_cast<double>(steps_of_epoch));
    sum_over_ranks(group.get(), losses, "training loss");
    const std::vector<double> totals = losses.to_vector<double>();
    if (options.test) accuracy = test_accuracy(trainee, data, group.get(), device, dtype);
    reporter.epoch({epoch, totals[0] / totals[1], accuracy, seconds_since(epoch_start)});
  }
  Summary summary = summarise(options, trainee, group.get(), device, timer);
  summary.test_accuracy = accuracy;
  reporter.finish(summary);  // first, so that a trace that cannot be written costs no figures
  trace.write();
}

}  // namespace examples
