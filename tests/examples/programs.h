#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/files.h"
#include "launch/process.h"

namespace ddp::test {

struct Ended {
  int code = -1;
  std::string output;
  std::string errors;
};

/// Runs a program with one thread, without whatever the surroundings say about ranks and data. `settings` are
/// more variables, as NAME=value.
inline Ended run_program(const std::vector<std::string>& command, const std::vector<std::string>& settings = {}) {
  std::vector<std::string> words = {"/usr/bin/env"};
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                           "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "DDP_DATA_DIR"}) {
    words.emplace_back("-u");
    words.emplace_back(name);
  }
  words.emplace_back("OMP_NUM_THREADS=1");
  words.insert(words.end(), settings.begin(), settings.end());
  words.insert(words.end(), command.begin(), command.end());
  Process process(words);
  const int code = process.wait();
  return {code, process.output(), process.errors()};
}

inline Bytes images(std::uint32_t count) {
  Bytes pixels;
  std::uint32_t state = 12345;
  for (std::uint32_t i = 0; i < count; ++i) {
    for (int pixel = 0; pixel < 784; ++pixel) {
      state = state * 1664525U + 1013904223U;
      // Noise and a bar whose place tells the label.
      const bool bar = pixel / 28 / 2 == static_cast<int>(i % 10);
      pixels.push_back(static_cast<std::uint8_t>((state >> 26) + (bar ? 180U : 0U)));
    }
  }
  return idx({count, 28, 28}, pixels);
}

inline Bytes labels(std::uint32_t count) {
  Bytes classes;
  for (std::uint32_t i = 0; i < count; ++i) classes.push_back(static_cast<std::uint8_t>(i % 10));
  return idx({count}, classes);
}

/// A folder like that of Fashion-MNIST or MNIST, with few examples: the training files gzip, the others plain.
class SmallData {
 public:
  static constexpr std::uint32_t kTrain = 96;
  static constexpr std::uint32_t kTest = 30;

  SmallData() {
    write_gzip(folder_ / "train-images-idx3-ubyte.gz", images(kTrain));
    write_gzip(folder_ / "train-labels-idx1-ubyte.gz", labels(kTrain));
    write_plain(folder_ / "t10k-images-idx3-ubyte", images(kTest));
    write_plain(folder_ / "t10k-labels-idx1-ubyte", labels(kTest));
  }
  std::string path() const { return folder_.path().string(); }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  TempFolder folder_;
};

}  // namespace ddp::test
