#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace examples {

/// One finished epoch, over all ranks.
struct EpochResult {
  int epoch = 0;
  double loss = 0;
  std::optional<double> accuracy;  ///< nothing: not tested
  double seconds = 0;
};

/// The whole run.
struct Summary {
  std::string model;
  std::string mode;
  std::string backend;
  std::string device;
  std::string dtype;
  int world_size = 1;
  int threads = 1;
  std::int64_t batch_size = 0;
  std::int64_t steps = 0;
  double step_ms = 0;
  double samples_per_s = 0;
  std::optional<double> test_accuracy;
  std::int64_t buckets = 0;
  std::int64_t collectives = 0;
  std::int64_t bytes_reduced = 0;
  std::int64_t bytes_copied = 0;
  double comm_ms = 0;          ///< per step: sum of the buckets' collective times; CPU groups only
  double exposed_comm_ms = 0;  ///< per step: waited for after backward
};

/// Progress for people on stdout and JSON lines for programs. Silent on ranks other than 0.
class Reporter {
 public:
  /// JSON goes to `json_path`.partial and takes its name at the end; empty: none. Throws ddp::IoError.
  Reporter(bool speaks, std::string json_path);

  /// True about twice a second (every 2 s where stdout is no terminal): time for a progress line.
  bool due() const;
  void progress(int epoch, int epochs, std::int64_t step, std::int64_t steps, double loss, double samples_per_s,
                double seconds_left);
  void epoch(const EpochResult& result);
  /// Prints and writes the summary and gives the JSON file its name.
  void finish(const Summary& summary);

 private:
  void write(const std::string& line);
  bool speaks_;
  bool terminal_;
  std::string path_;
  std::ofstream json_;
  mutable std::chrono::steady_clock::time_point last_;
};

/// Middle of the numbers; 0 for none.
double median(std::vector<double> values);

}  // namespace examples
