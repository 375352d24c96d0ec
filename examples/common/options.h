#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace examples {

/// What the training examples can be told on the command line.
struct Options {
  bool ddp = true;         ///< --mode
  std::string device;      ///< --device; empty: the group's choice, or cpu:0 in local mode
  std::string data;        ///< --data; empty: where Debian puts Fashion-MNIST
  bool synthetic = false;  ///< --synthetic
  int epochs = 2;
  std::int64_t steps = 0;        ///< 0: no limit
  std::int64_t batch_size = 64;  ///< per rank
  double lr = 0.05;
  double momentum = 0.9;
  std::uint64_t seed = 1;
  std::optional<double> bucket_cap_mb;
  std::string dtype = "float32";
  bool test = true;   ///< off with --no-test
  std::string json;   ///< --json; empty: none
  std::string trace;  ///< --trace; empty: none
};

/// Reads the command line. Nothing when the program should end now, with `exit_code` (help 0, usage error 2,
/// after one line on stderr).
std::optional<Options> parse_options(int argc, char** argv, const std::string& about, int& exit_code);

}  // namespace examples
