#include "common/reporter.h"

#include <ddp/core/error.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

namespace examples {

Reporter::Reporter(bool speaks, std::string json_path)
    : speaks_(speaks),
      terminal_(isatty(STDOUT_FILENO) == 1),
      path_(std::move(json_path)),
      last_(std::chrono::steady_clock::now()) {
  if (!speaks_ || path_.empty()) return;
  // Now, not when the run is over and its lines could no longer get their name.
  std::error_code ignored;
  DDP_CHECK(!std::filesystem::is_directory(path_, ignored), ddp::IoError, "cannot write '", path_, "': it is a folder");
  json_.open(path_ + ".partial", std::ios::trunc);
  DDP_CHECK(json_.is_open(), ddp::IoError, "cannot write '", path_, ".partial'");
}

bool Reporter::due() const {
  if (!speaks_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(terminal_ ? 500 : 2000)) return false;
  last_ = now;
  return true;
}

void Reporter::progress(int epoch, int epochs, std::int64_t step, std::int64_t steps, double loss, double samples_per_s,
                        double seconds_left) {
  std::printf("%sepoch %d/%d  step %lld/%lld  loss %.4f  %.0f samples/s  %.0f s left%s", terminal_ ? "\r\x1b[K" : "",
              epoch, epochs, static_cast<long long>(step), static_cast<long long>(steps), loss, samples_per_s,
              seconds_left, terminal_ ? "" : "\n");
  std::fflush(stdout);
}

void Reporter::write(const std::string& line) {
  if (!json_.is_open()) return;
  json_ << line << '\n' << std::flush;
  DDP_CHECK(json_.good(), ddp::IoError, "writing '", path_, ".partial' failed");
}

void Reporter::epoch(const EpochResult& result) {
  if (!speaks_) return;
  std::printf("%sepoch %d  loss %.4f", terminal_ ? "\r\x1b[K" : "", result.epoch, result.loss);
  if (result.accuracy) std::printf("  test accuracy %.4f", *result.accuracy);
  std::printf("  %.1f s\n", result.seconds);
  std::fflush(stdout);
  nlohmann::ordered_json json{{"event", "epoch"},
                              {"epoch", result.epoch},
                              {"loss", result.loss},
                              {"accuracy", nullptr},
                              {"seconds", result.seconds}};
  if (result.accuracy) json["accuracy"] = *result.accuracy;
  write(json.dump());
}

void Reporter::finish(const Summary& summary) {
  if (!speaks_) return;
  std::printf("%s%s, %s, %d rank%s x %d thread%s: %.2f ms a step, %.0f samples/s", terminal_ ? "\r\x1b[K" : "",
              summary.model.c_str(), summary.mode.c_str(), summary.world_size, summary.world_size == 1 ? "" : "s",
              summary.threads, summary.threads == 1 ? "" : "s", summary.step_ms, summary.samples_per_s);
  if (summary.collectives > 0 && summary.comm_ms == 0) {  // CUDA groups measure what is waited for, not the sums
    std::printf("; %.2f ms a step of the all-reduce not hidden by backward", summary.exposed_comm_ms);
  } else if (summary.collectives > 0) {
    // The wait has the time to wake up in it, and so can be a little longer than the sums themselves.
    std::printf("; all-reduce %.2f ms a step, of it %.2f ms not hidden by backward", summary.comm_ms,
                std::min(summary.exposed_comm_ms, summary.comm_ms));
  }
  std::printf("\n");
  std::fflush(stdout);
  nlohmann::ordered_json json{{"event", "summary"},
                              {"model", summary.model},
                              {"mode", summary.mode},
                              {"backend", summary.backend},
                              {"device", summary.device},
                              {"dtype", summary.dtype},
                              {"world_size", summary.world_size},
                              {"threads", summary.threads},
                              {"batch_size", summary.batch_size},
                              {"steps", summary.steps},
                              {"step_ms", summary.step_ms},
                              {"samples_per_s", summary.samples_per_s},
                              {"test_accuracy", nullptr},
                              {"buckets", summary.buckets},
                              {"collectives", summary.collectives},
                              {"bytes_reduced", summary.bytes_reduced},
                              {"bytes_copied", summary.bytes_copied},
                              {"comm_ms", summary.comm_ms},
                              {"exposed_comm_ms", summary.exposed_comm_ms}};
  if (summary.test_accuracy) json["test_accuracy"] = *summary.test_accuracy;
  write(json.dump());
  if (!json_.is_open()) return;
  json_.close();
  std::error_code failure;
  std::filesystem::rename(path_ + ".partial", path_, failure);
  DDP_CHECK(!failure, ddp::IoError, "cannot give '", path_, ".partial' its name: ", failure.message());
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace examples
