// libddp's side of the step comparison: the same model, weights, batches and optimiser as torch_step.py.
// Started by compare.py; in ddp mode once per rank, with torchrun's variables set.
#include <ddp/ddp.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/cnn.h"
#include "models/mlp.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  std::string model;
  std::string mode;
  std::string data;
  std::string json;
  std::int64_t batch_size = 64;
  int steps = 100;
  int warmup = 20;
  double bucket_cap_mb = 25;
  std::string device = "cpu";
  int windows = 10;
  bool tf32 = false;
};

/// Weights from a hash of the element's number, so that both sides start alike (see torch_step.py).
void set_weights(ddp::nn::Module& module) {
  std::uint64_t counter = 0;
  for (const ddp::Tensor& parameter : module.parameters()) {
    const std::int64_t n = parameter.numel();
    const std::int64_t fan_in = parameter.dim() > 1 ? n / parameter.size(0) : n;
    auto* data = parameter.data_ptr<float>();
    for (std::int64_t i = 0; i < n; ++i) {
      std::uint64_t bits = ((static_cast<std::uint64_t>(i) + counter) * 2654435761ULL) & 0xffffffffULL;
      bits ^= bits >> 15;
      bits = (bits * 2246822519ULL) & 0xffffffffULL;
      bits ^= bits >> 13;
      data[i] = static_cast<float>((static_cast<double>(bits) / 4294967296.0 - 0.5) * 2 /
                                   std::sqrt(static_cast<double>(fan_in)));
    }
    counter += static_cast<std::uint64_t>(n);
  }
}

struct Timings {
  std::vector<double> step_ms;
  std::vector<double> losses;
};

/// Each step by itself: its loss is read at its end.
template <class Step>
Timings time_steps(const Settings& settings, const std::vector<ddp::data::Batch>& batches, const Step& step) {
  Timings timings;
  auto last = Clock::now();
  for (const auto& batch : batches) {
    timings.losses.push_back(step(batch).template item<double>());
    const auto now = Clock::now();
    timings.step_ms.push_back(std::chrono::duration<double, std::milli>(now - last).count());
    last = now;
  }
  timings.step_ms.erase(timings.step_ms.begin(), timings.step_ms.begin() + settings.warmup);
  return timings;
}

/// Steps queued back to back, as in training; the mean of each window of steps, from one wait for the device to the
/// next.
template <class Step>
Timings time_windows(const Settings& settings, const std::vector<ddp::data::Batch>& batches, const Step& step) {
  Timings timings;
  std::vector<ddp::Tensor> losses;
  std::size_t next = 0;
  const auto run_steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ddp::Tensor loss = step(batches[next++ % batches.size()]);
      if (losses.size() < 20) losses.push_back(std::move(loss));
    }
  };
  const ddp::StreamView stream = ddp::current_stream(batches.front().input.device());
  run_steps(settings.warmup);
  for (int window = 0; window < settings.windows; ++window) {
    stream.synchronize();
    const auto start = Clock::now();
    run_steps(settings.steps);
    stream.synchronize();
    timings.step_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count() / settings.steps);
  }
  for (const ddp::Tensor& loss : losses) timings.losses.push_back(loss.item<double>());
  return timings;
}

template <class Model>
void run(const Settings& settings) {
  const bool cuda = settings.device == "cuda";
  std::shared_ptr<ddp::comm::ProcessGroup> group;
  if (settings.mode == "ddp") group = ddp::comm::init_process_group({.backend = cuda ? "nccl" : "gloo"});
  const int rank = group ? group->rank() : 0;
  const int size = group ? group->size() : 1;
  const ddp::Device device = group ? group->device() : cuda ? ddp::Device::cuda(0) : ddp::Device::cpu();

  const ddp::data::FashionMNIST dataset(settings.data);
  std::vector<ddp::data::Batch> batches;
  const int count = cuda ? 64 : settings.steps + settings.warmup;
  for (int step = 0; step < count; ++step) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < settings.batch_size; ++i) {
      indices.push_back(((static_cast<std::int64_t>(step) * size + rank) * settings.batch_size + i) % dataset.size());
    }
    const auto [input, target] = dataset.get_batch(indices);
    batches.push_back({ddp::to(input, device), ddp::to(target, device)});
  }

  auto model = std::make_shared<Model>();
  set_weights(*model);
  model->to(device);
  std::optional<ddp::parallel::DistributedDataParallel<Model>> replica;
  if (group) {
    ddp::parallel::DDPOptions options;
    options.bucket_cap_bytes = {static_cast<std::int64_t>(settings.bucket_cap_mb * 1048576)};
    replica.emplace(model, group, options);
  }
  ddp::optim::SGD optimizer(model->parameters(), {.lr = 0.01, .momentum = 0.9});
  const auto step = [&](const ddp::data::Batch& batch) {
    optimizer.zero_grad();
    const ddp::Tensor loss =
        ddp::cross_entropy(replica ? (*replica)(batch.input) : model->forward(batch.input), batch.target);
    loss.backward();
    optimizer.step();
    return loss.detach();
  };
  const auto before = ddp::trace::snapshot();
  const Timings timings = cuda ? time_windows(settings, batches, step) : time_steps(settings, batches, step);
  const auto counted = ddp::trace::snapshot() - before;
  if (rank == 0) {
    nlohmann::ordered_json result{{"peer", "libddp"},
                                  {"model", settings.model},
                                  {"mode", settings.mode},
                                  {"device", settings.device},
                                  {"world_size", size},
                                  {"batch_size", settings.batch_size},
                                  {"threads", ddp::num_threads()},
                                  {"losses", timings.losses},
                                  {"step_ms", timings.step_ms}};
    const int steps = settings.warmup + settings.steps * (cuda ? settings.windows : 1);
    result["launches_per_step"] = static_cast<double>(counted[ddp::trace::Counter::kernel_launches]) / steps;
    result["blocking_calls"] = counted[ddp::trace::Counter::blocking_calls];
    if (replica && replica->reducer() != nullptr) {
      const auto counters = replica->reducer()->counters();
      result["comm_ms"] = counters.communication_ms / static_cast<double>(counters.passes);
      result["exposed_comm_ms"] = counters.exposed_ms / static_cast<double>(counters.passes);
    }
    std::ofstream(settings.json + ".partial") << result.dump();
    std::filesystem::rename(settings.json + ".partial", settings.json);
  }
  if (group) group->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("One training loop over fixed batches, timed step by step");
  app.add_option("--model", settings.model)->check(CLI::IsMember({"mlp", "cnn"}))->required();
  app.add_option("--mode", settings.mode)->check(CLI::IsMember({"local", "ddp"}))->required();
  app.add_option("--data", settings.data)->required();
  app.add_option("--batch-size", settings.batch_size)->check(CLI::PositiveNumber);
  app.add_option("--steps", settings.steps)->check(CLI::PositiveNumber);
  app.add_option("--warmup", settings.warmup)->check(CLI::NonNegativeNumber);
  app.add_option("--bucket-cap-mb", settings.bucket_cap_mb)->check(CLI::PositiveNumber);
  app.add_option("--device", settings.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--windows", settings.windows, "cuda: so many times --steps steps")->check(CLI::PositiveNumber);
  app.add_flag("--tf32", settings.tf32, "cuda: matrix products of float32 may use TF32");
  app.add_option("--json", settings.json)->required();
  CLI11_PARSE(app, argc, argv);
  try {
    ddp::set_allow_tf32(settings.tf32);
    ddp::set_autotune(settings.device == "cuda");  // the peer has cudnn.benchmark on
    settings.model == "mlp" ? run<examples::Mlp>(settings) : run<examples::Cnn>(settings);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 1;
  }
}
