#include "common/options.h"

#include <CLI/CLI.hpp>
#include <iostream>

namespace examples {

std::optional<Options> parse_options(int argc, char** argv, const std::string& about, int& exit_code) {
  Options options;
  std::string mode = "ddp";
  CLI::App app(about);
  app.add_option("--mode", mode,
                 "ddp: one replica on each rank (start with `ddp run -n N -- ...`); local: this process alone")
      ->check(CLI::IsMember({"local", "ddp"}))
      ->capture_default_str();
  app.add_option("--device", options.device, "cpu, cpu:N, cuda or cuda:N");
  auto* data =
      app.add_option("--data", options.data, "folder with the four Fashion-MNIST (or MNIST) IDX files, .gz or not");
  app.add_flag("--synthetic", options.synthetic, "made-up images instead of files")->excludes(data);
  app.add_option("--epochs", options.epochs, "passes over the training data")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "stop after this many steps (0: after the epochs)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "examples per rank and step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--lr", options.lr, "learning rate")->check(CLI::Range(0.0, 1e6))->capture_default_str();
  app.add_option("--momentum", options.momentum, "momentum of SGD")->check(CLI::Range(0.0, 1.0))->capture_default_str();
  app.add_option("--seed", options.seed, "of the initial weights and the order of the data")->capture_default_str();
  app.add_option("--bucket-cap-mb", options.bucket_cap_mb,
                 "MiB after which a gradient bucket is closed (default 25, the first 1)")
      ->check(CLI::Range(1e-6, 1e6));
  app.add_option("--dtype", options.dtype, "of parameters and activations")
      ->check(CLI::IsMember({"float32", "float64"}))
      ->capture_default_str();
  app.add_option("--json", options.json, "write JSON lines to this file (rank 0)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    exit_code = 0;
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::cerr << argv[0] << ": " << error.what() << " (see --help)\n";
    exit_code = 2;
    return std::nullopt;
  }
  options.ddp = mode == "ddp";
  return options;
}

}  // namespace examples
