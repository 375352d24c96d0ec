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

template <class Model>
void run(const Settings& settings) {
  std::shared_ptr<ddp::comm::ProcessGroup> group;
  if (settings.mode == "ddp") group = ddp::comm::init_process_group({.backend = "gloo"});
  const int rank = group ? group->rank() : 0;
  const int size = group ? group->size() : 1;

  const ddp::data::FashionMNIST dataset(settings.data);
  std::vector<ddp::data::Batch> batches;
  for (int step = 0; step < settings.steps + settings.warmup; ++step) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < settings.batch_size; ++i) {
      indices.push_back(((static_cast<std::int64_t>(step) * size + rank) * settings.batch_size + i) % dataset.size());
    }
    batches.push_back(dataset.get_batch(indices));
  }

  auto model = std::make_shared<Model>();
  set_weights(*model);
  std::optional<ddp::parallel::DistributedDataParallel<Model>> replica;
  if (group) {
    ddp::parallel::DDPOptions options;
    options.bucket_cap_bytes = {static_cast<std::int64_t>(settings.bucket_cap_mb * 1048576)};
    replica.emplace(model, group, options);
  }
  ddp::optim::SGD optimizer(model->parameters(), {.lr = 0.01, .momentum = 0.9});
  std::vector<double> times;
  std::vector<double> losses;
  auto last = Clock::now();
  for (const auto& [x, y] : batches) {
    optimizer.zero_grad();
    const ddp::Tensor loss = ddp::cross_entropy(replica ? (*replica)(x) : model->forward(x), y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double, std::milli>(now - last).count());
    last = now;
  }
  if (rank == 0) {
    nlohmann::ordered_json result{{"peer", "libddp"},
                                  {"model", settings.model},
                                  {"mode", settings.mode},
                                  {"world_size", size},
                                  {"batch_size", settings.batch_size},
                                  {"threads", ddp::num_threads()},
                                  {"losses", losses},
                                  {"step_ms", std::vector<double>(times.begin() + settings.warmup, times.end())}};
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
  app.add_option("--json", settings.json)->required();
  CLI11_PARSE(app, argc, argv);
  try {
    settings.model == "mlp" ? run<examples::Mlp>(settings) : run<examples::Cnn>(settings);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 1;
  }
}
