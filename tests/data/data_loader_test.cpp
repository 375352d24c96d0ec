#include "ddp/data/data_loader.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "data/files.h"
#include "ddp/core/error.h"

namespace ddp::data {
namespace {

using test::expect_error;
using Indices = std::vector<std::int64_t>;
using namespace std::chrono_literals;

/// Example i is the number 10*i with target i; batches are counted, and the one with example `bad` throws.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t bad = -1) : size_(size), bad_(bad) {}
  std::int64_t size() const override { return size_; }
  Batch get_batch(std::span<const std::int64_t> indices) const override {
    std::vector<float> values;
    for (const std::int64_t i : indices) {
      if (i == bad_) throw std::out_of_range("bad sample " + std::to_string(i));
      values.push_back(static_cast<float>(10 * i));
    }
    // Uneven work, so that workers overtake each other.
    std::this_thread::sleep_for(std::chrono::microseconds(indices[0] % 3 * 300));
    ++made;
    return {tensor(values, {static_cast<std::int64_t>(values.size())}),
            tensor(indices, {static_cast<std::int64_t>(indices.size())})};
  }
  mutable std::atomic<int> made{0};

 private:
  std::int64_t size_;
  std::int64_t bad_;
};

int count_threads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

std::vector<Indices> run(DataLoader& loader) {
  std::vector<Indices> result;
  for (auto [input, target] : loader) {
    result.push_back(target.to_vector<std::int64_t>());
    const std::vector<float> values = input.to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], static_cast<float>(10 * result.back()[i]));
    }
  }
  return result;
}

TEST(DataLoader, KeepsTheOrderWhateverTheNumberOfWorkers) {
  const Numbers set(103);
  const DistributedSampler sampler(103, 2, 1, {.seed = 4, .agree = [](std::uint64_t seed) { return seed; }});
  const Indices order = sampler.indices();
  for (const int workers : {0, 1, 2, 5}) {
    for (const int prefetch : {1, 3}) {
      DataLoader loader(set, sampler, {.batch_size = 5, .workers = workers, .prefetch = prefetch});
      EXPECT_EQ(loader.size(), 11);
      const auto batches = run(loader);
      ASSERT_EQ(batches.size(), 11U);
      Indices all;
      for (std::size_t i = 0; i < batches.size(); ++i) {
        EXPECT_EQ(batches[i].size(), i == 10 ? 2U : 5U);
        all.insert(all.end(), batches[i].begin(), batches[i].end());
      }
      EXPECT_EQ(all, order);
    }
  }
}

TEST(DataLoader, PrefetchBeyondTheBatchesTakesNoMemory) {
  const Numbers set(7);
  const SequentialSampler sampler(7);
  DataLoader loader(set, sampler, {.batch_size = 2, .workers = 2, .prefetch = std::numeric_limits<int>::max()});
  EXPECT_EQ(run(loader), (std::vector<Indices>{{0, 1}, {2, 3}, {4, 5}, {6}}));
}

TEST(DataLoader, DropLastLeavesOutTheSmallerBatch) {
  const Numbers set(11);
  const SequentialSampler sampler(11);
  DataLoader loader(set, sampler, {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(run(loader), (std::vector<Indices>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  DataLoader whole(set, sampler, {.batch_size = 11, .drop_last = true});
  EXPECT_EQ(run(whole).size(), 1U);
}

TEST(DataLoader, EachEpochAsksTheSamplerAgain) {
  const Numbers set(12);
  DistributedSampler sampler(12, 1, 0);
  DataLoader loader(set, sampler, {.batch_size = 12, .workers = 2});
  const auto zero = run(loader);
  sampler.set_epoch(1);
  const auto one = run(loader);
  sampler.set_epoch(0);
  EXPECT_NE(zero, one);
  EXPECT_EQ(run(loader), zero);
  // A loader made anew goes on with the sampler's epoch.
  sampler.set_epoch(1);
  DataLoader again(set, sampler, {.batch_size = 12});
  EXPECT_EQ(run(again), one);
}

TEST(DataLoader, HandsOutTheExceptionAtItsBatch) {
  const Numbers set(40, 22);
  const SequentialSampler sampler(40);
  for (const int workers : {0, 1, 3}) {
    DataLoader loader(set, sampler, {.batch_size = 4, .workers = workers});
    std::vector<Indices> before;
    try {
      for (auto [input, target] : loader) before.push_back(target.to_vector<std::int64_t>());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "bad sample 22");
    }
    EXPECT_EQ(before.size(), 5U);
    EXPECT_EQ(before.back(), (Indices{16, 17, 18, 19}));
    // The epoch has ended: its iterator is at the end, and a new one starts over.
    EXPECT_EQ((*loader.begin()).target.to_vector<std::int64_t>(), (Indices{0, 1, 2, 3}));
  }
}

TEST(DataLoader, LeavingEarlyStopsTheWorkers) {
  const int threads_before = count_threads();
  const Numbers set(100000);
  const SequentialSampler sampler(100000);
  DataLoader loader(set, sampler, {.batch_size = 2, .workers = 3, .prefetch = 2});
  int seen = 0;
  Batch kept;
  for (auto batch : loader) {
    kept = batch;
    if (++seen == 3) break;
  }
  EXPECT_EQ(count_threads(), threads_before);
  const int made = set.made;
  // 3 handed out, at most 3 * 2 ready ahead, at most 3 being made.
  EXPECT_LE(made, 3 + 6 + 3);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(set.made, made);
  EXPECT_EQ(kept.target.to_vector<std::int64_t>(), (Indices{4, 5}));  // valid after the loop
}

TEST(DataLoader, EpochsDoNotDisturbEachOther) {
  const Numbers set(8);
  const SequentialSampler sampler(8);
  DataLoader loader(set, sampler, {.batch_size = 2, .workers = 2});
  auto first = loader.begin();
  auto second = loader.begin();
  ++first;
  EXPECT_EQ((*first).target.to_vector<std::int64_t>(), (Indices{2, 3}));
  EXPECT_EQ((*second).target.to_vector<std::int64_t>(), (Indices{0, 1}));
  ++second;
  ++second;
  ++second;
  EXPECT_FALSE(second == loader.end());
  ++second;
  EXPECT_TRUE(second == loader.end());
  ++second;  // stays there
  EXPECT_TRUE(second == loader.end());
  EXPECT_FALSE(first == loader.end());
}

TEST(DataLoader, OtherCpuDevicesShareTheMemory) {
  const Tensor inputs = tensor<float>({1, 2, 3, 4});
  const TensorDataset set(inputs, tensor<std::int64_t>({5, 6, 7, 8}));
  const SequentialSampler sampler(4);
  DataLoader loader(set, sampler, {.batch_size = 4, .device = Device::cpu(3)});
  Batch kept;
  for (auto batch : loader) kept = batch;
  EXPECT_EQ(kept.input.device(), Device::cpu(3));
  EXPECT_EQ(kept.target.device(), Device::cpu(3));
  EXPECT_EQ(kept.input.to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(kept.target.to_vector<std::int64_t>(), (Indices{5, 6, 7, 8}));
}

TEST(DataLoader, RefusesBadOptions) {
  const Numbers set(100);
  const DistributedSampler sampler(100, 4, 0);
  const auto make = [&](const DataLoaderOptions& options) {
    return [&, options] { DataLoader(set, sampler, options); };
  };
  expect_error<InvalidArgument>(make({.batch_size = 0}), {"batch_size is 0"});
  expect_error<InvalidArgument>(make({.batch_size = 26}), {"batch_size 26", "25 examples", "dataset of 100"});
  expect_error<InvalidArgument>(make({.batch_size = 5, .workers = -1}), {"workers is -1"});
  expect_error<InvalidArgument>(make({.batch_size = 5, .prefetch = 0}), {"prefetch is 0"});
  expect_error<InvalidArgument>(make({.batch_size = 5, .timeout = 0ms}), {"timeout is 0 ms"});
  const Device missing = Device::cuda(device_count(DeviceType::cuda));
  expect_error<InvalidArgument>(make({.batch_size = 5, .device = missing}), {to_string(missing), "CUDA devices here"});
}

/// Blocks in get_batch until it is opened.
class Gate : public Dataset {
 public:
  std::int64_t size() const override { return 6; }
  Batch get_batch(std::span<const std::int64_t> indices) const override {
    std::unique_lock lock(mutex_);
    if (indices[0] >= 2) opened_.wait_for(lock, 60s, [this] { return open_; });
    ++left;
    left_.notify_all();
    return {zeros({2}), zeros({2})};
  }
  void open() {
    std::unique_lock lock(mutex_);
    open_ = true;
    opened_.notify_all();
    left_.wait_for(lock, 60s, [this] { return left == 2; });
  }
  mutable int left = 0;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable opened_;
  mutable std::condition_variable left_;
  bool open_ = false;
};

TEST(DataLoader, AStuckDatasetIsATimeout) {
  static Gate gate;  // outlives the worker that is left behind
  const int threads_before = count_threads();
  const SequentialSampler sampler(6);
  ::testing::internal::CaptureStderr();
  expect_error<TimeoutError>(
      [&] {
        DataLoader loader(gate, sampler, {.batch_size = 2, .workers = 1, .timeout = 50ms});
        for (auto batch : loader) EXPECT_EQ(batch.input.numel(), 2);
      },
      {"batch 1 of 3", "50 ms"});
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("left behind"), std::string::npos) << warning;
  gate.open();
  for (int i = 0; i < 500 && count_threads() > threads_before; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(count_threads(), threads_before);
}

}  // namespace
}  // namespace ddp::data
