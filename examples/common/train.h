#pragma once

#include <ddp/ddp.h>

#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "common/options.h"

namespace examples {

/// How one model is trained, whatever its type: the loop needs no more than this.
struct Trainee {
  std::string name;
  std::function<ddp::Tensor(const ddp::Tensor&)> forward;  ///< the module, or DDP around it
  ddp::nn::Module* module = nullptr;
  ddp::parallel::Reducer* reducer = nullptr;  ///< null: nothing is reduced
};

/// Trains and tests; writes progress and JSON. `group` is null in local mode.
void run_training(const Options& options, const Trainee& trainee, const std::shared_ptr<ddp::comm::ProcessGroup>& group,
                  ddp::Device device);

/// Checks what the environment says about ranks; makes the group, or null in local mode.
std::shared_ptr<ddp::comm::ProcessGroup> make_group(const Options& options);
ddp::Device choose_device(const Options& options, const ddp::comm::ProcessGroup* group);
ddp::parallel::DDPOptions ddp_options(const Options& options);

/// The whole program for one model. Exit codes: 0, 2 for usage, 1 for anything else, after one line.
template <class Model>
int train_main(int argc, char** argv, const std::string& about) {
  int exit_code = 0;
  const std::optional<Options> options = parse_options(argc, argv, about, exit_code);
  if (!options) return exit_code;
  try {
    const auto group = make_group(*options);
    const ddp::Device device = choose_device(*options, group.get());
    ddp::manual_seed(options->seed);
    auto model = std::make_shared<Model>();
    model->to(ddp::parse_dtype(options->dtype));
    model->to(device);
    Trainee trainee{Model::kName, [&](const ddp::Tensor& x) { return model->forward(x); }, model.get(), nullptr};
    std::optional<ddp::parallel::DistributedDataParallel<Model>> replica;
    if (group) {
      replica.emplace(model, group, ddp_options(*options));
      trainee.forward = [&](const ddp::Tensor& x) { return (*replica)(x); };
      trainee.reducer = replica->reducer();
    }
    run_training(*options, trainee, group, device);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 1;
  }
}

}  // namespace examples
