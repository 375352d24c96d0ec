// `ddp run` with GPUs: one rank for each, and several on one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ddp/core/device.h"
#include "process.h"

namespace ddp::test {
namespace {

struct Ended {
  int code;
  std::string output;
  std::string errors;
};

Ended run(std::vector<std::string> words) {
  words.insert(words.begin(), {DDP_COMMAND, "run"});
  Process process(words);
  const int code = process.wait();
  return {code, process.output(), process.errors()};
}

TEST(CudaRun, OneRankForEachGpu) {
  const int gpus = device_count(DeviceType::cuda);
  const Ended ended = run({"-n", "gpu", "--", RANK_PROGRAM, "env"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_NE(ended.output.find("WORLD_SIZE=" + std::to_string(gpus)), std::string::npos) << ended.output;
  if (gpus == 1) {
    EXPECT_NE(ended.errors.find("-n 2 --share-gpu"), std::string::npos) << ended.errors;
  }
}

TEST(CudaRun, MoreRanksThanGpusAreToldOfSharing) {
  const int ranks = device_count(DeviceType::cuda) + 1;
  const Ended ended = run({"-n", std::to_string(ranks), "--", CUDA_RANK_PROGRAM});
  EXPECT_NE(ended.code, 0);
  EXPECT_NE(ended.errors.find("--share-gpu"), std::string::npos) << ended.errors;
}

TEST(CudaRun, RanksShareAGpu) {
  const int ranks = device_count(DeviceType::cuda) + 1;
  const Ended ended = run({"-n", std::to_string(ranks), "--share-gpu", "--", CUDA_RANK_PROGRAM});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  const std::string sum = "sum " + std::to_string(ranks * (ranks + 1) / 2);
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_NE(ended.output.find("[rank " + std::to_string(rank) + "] nccl " + sum), std::string::npos) << ended.output;
  }
  EXPECT_NE(ended.errors.find("ranks share"), std::string::npos) << ended.errors;
}

TEST(CudaRun, NoServiceIsLeftBehind) {
  const int ranks = device_count(DeviceType::cuda) + 1;
  const Ended ended = run({"-n", std::to_string(ranks), "--share-gpu", "--", RANK_PROGRAM, "mps"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  const auto pids = numbers_after(ended.output, "mps_daemon");
  for (const pid_t pid : pids) EXPECT_TRUE(is_gone_soon(pid)) << pid;
  const bool started = ended.errors.find("CUDA MPS started for this run") != std::string::npos;
  EXPECT_EQ(pids.empty(), !started) << ended.errors;
}

}  // namespace
}  // namespace ddp::test
