#include "common/options.h"

#include <ddp/core/device.h>
#include <ddp/core/error.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

namespace examples {
namespace {

/// Numbers from `low` to `high`; anything else is an error that says so. (CLI11's own range check calls 2.5 out of
/// range for a whole number and lets -1 become a huge unsigned one.)
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& value, T low, T high, const std::string& help) {
  const auto read = [name, &value, low, high](const std::string& text) {
    T parsed{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    // Written so that a NaN fails.
    if (error != std::errc() || end != text.data() + text.size() || !(parsed >= low && parsed <= high)) {
      throw CLI::ValidationError(ddp::concat(name, " is '", text,
                                             "'; allowed: ", std::is_integral_v<T> ? "a whole number" : "a number",
                                             " from ", low, " to ", high));
    }
    value = parsed;
  };
  return app.add_option_function<std::string>(name, read, help)->type_name(std::is_integral_v<T> ? "N" : "X");
}

CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& value, const std::string& one,
                        const std::string& other, const std::string& help) {
  const auto read = [name, &value, one, other](const std::string& text) {
    if (text != one && text != other) {
      throw CLI::ValidationError(ddp::concat(name, " is '", text, "'; allowed: ", one, ", ", other));
    }
    value = text;
  };
  return app.add_option_function<std::string>(name, read, help)->type_name(ddp::concat(one, "|", other));
}

CLI::Option* add_path(CLI::App& app, const std::string& name, std::string& value, const std::string& type,
                      const std::string& help) {
  const auto read = [name, &value](const std::string& text) {
    if (text.empty() || text.starts_with("--")) {
      throw CLI::ValidationError(ddp::concat(name, " is '", text, "'; allowed: a path"));
    }
    value = text;
  };
  return app.add_option_function<std::string>(name, read, help)->type_name(type);
}

class Formatter : public CLI::Formatter {
 public:
  Formatter() { column_width(27); }
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    const std::string program = std::filesystem::path(name).filename().string();
    return ddp::concat("Usage: ddp run -n N -- ", program, " [OPTIONS]\n       ", program, " --mode local [OPTIONS]\n");
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
};

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, const std::string& about, int& exit_code) {
  Options options;
  std::string mode = "ddp";
  double bucket_cap_mb = 0;
  CLI::App app(about);
  app.formatter(std::make_shared<Formatter>());
  app.set_help_flag("-h,--help", "Print this help and exit");
  add_choice(app, "--mode", mode, "local", "ddp",
             "local: train in this process alone; ddp: one replica on each rank (default)");
  app.add_option_function<std::string>(
         "--device",
         [&options](const std::string& text) {
           try {
             ddp::Device::parse(text);
           } catch (const ddp::Error& error) {
             throw CLI::ValidationError(ddp::concat("--", error.what()));
           }
           options.device = text;
         },
         "cpu, cpu:N, cuda or cuda:N (default: cuda:LOCAL_RANK where every rank has a GPU, else cpu)")
      ->type_name("NAME");
  auto* data = add_path(app, "--data", options.data, "DIR",
                        "Folder with the four IDX files of Fashion-MNIST or MNIST, .gz or not (default: DDP_DATA_DIR, "
                        "else where Debian puts Fashion-MNIST)");
  auto* synthetic = app.add_flag("--synthetic", options.synthetic, "Made-up images instead of files");
  add_number(app, "--epochs", options.epochs, 1, 100000, "Passes over the training data (default 2)");
  add_number(app, "--steps", options.steps, std::int64_t{0}, std::int64_t{1} << 40,
             "Stop after this many steps (default 0: after the epochs)");
  add_number(app, "--batch-size", options.batch_size, std::int64_t{1}, std::int64_t{1} << 30,
             "Examples per rank and step (default 64)");
  add_number(app, "--lr", options.lr, 0.0, 1e6, "Learning rate (default 0.05)");
  add_number(app, "--momentum", options.momentum, 0.0, 1.0, "Momentum of SGD (default 0.9)");
  add_number(app, "--seed", options.seed, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(),
             "Of the initial weights and the order of the data (default 1)");
  auto* cap = add_number(app, "--bucket-cap-mb", bucket_cap_mb, 1e-6, 1e6,
                         "MiB after which a gradient bucket is closed (default 25, the first 1)");
  add_choice(app, "--dtype", options.dtype, "float32", "float64", "Of parameters and activations (default float32)");
  bool no_test = false;
  app.add_flag("--no-test", no_test, "Leave out the test accuracy after each epoch");
  add_path(app, "--json", options.json, "FILE", "Write JSON lines to this file (rank 0)");
  add_path(app, "--trace", options.trace, "DIR",
           "Record each step and write JSON lines and Chrome traces of all ranks to this folder (open DIR/trace.json "
           "at ui.perfetto.dev)");
  app.footer("Threads per rank: OMP_NUM_THREADS; ddp run divides the cores among its ranks.\n");
  try {
    app.allow_extras();  // CLI11 would list them from back to front
    app.parse(argc, argv);
    if (const std::vector<std::string> extra = app.remaining(); !extra.empty()) {
      throw CLI::ExtrasError(
          ddp::concat(extra.front().starts_with('-') ? "unknown option '" : "unexpected '", extra.front(), "'"),
          CLI::ExitCodes::ExtrasError);
    }
    if (data->count() > 0 && synthetic->count() > 0) {
      throw CLI::ValidationError("--data and --synthetic exclude each other");
    }
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    exit_code = 0;
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::cerr << argv[0] << ": " << error.what() << " (see --help)\n";
    exit_code = 2;
    return std::nullopt;
  }
  if (cap->count() > 0) options.bucket_cap_mb = bucket_cap_mb;
  options.test = !no_test;
  options.ddp = mode == "ddp";
  return options;
}

}  // namespace examples
