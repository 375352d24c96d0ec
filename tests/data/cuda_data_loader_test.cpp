// Batches on a GPU: the right numbers, in time, and without the host waiting for the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "ddp/core/error.h"
#include "ddp/core/stream.h"
#include "ddp/data/data_loader.h"
#include "ddp/trace/recorder.h"
#include "tensor/copy.h"

namespace ddp::data {
namespace {

constexpr Device kGpu = Device::cuda(0);
constexpr std::int64_t kWidth = 1 << 14;

/// Example i is a row of the number i with target i, made anew (and so in pinned memory) or a view of what is kept.
class Rows : public Dataset {
 public:
  explicit Rows(std::int64_t size, bool kept = false) : size_(size) {
    if (!kept) return;
    rows_ = empty({size, kWidth});
    for (std::int64_t i = 0; i < size; ++i) raw::slice(rows_, 0, i, i + 1, 1).fill_(static_cast<double>(i));
    targets_ = arange(size);
  }
  std::int64_t size() const override { return size_; }
  Batch get_batch(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    if (rows_.defined()) {  // SequentialSampler: the indices are one after the other
      return {raw::slice(rows_, 0, indices[0], indices[0] + count, 1),
              raw::slice(targets_, 0, indices[0], indices[0] + count, 1)};
    }
    Tensor input = empty({count, kWidth});
    Tensor target = empty({count}, {DType::int64});
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t value = indices[static_cast<std::size_t>(i)];
      std::fill_n(input.data_ptr<float>() + i * kWidth, kWidth, static_cast<float>(value));
      target.data_ptr<std::int64_t>()[i] = value;
    }
    return {input, target};
  }

 private:
  std::int64_t size_;
  Tensor rows_;
  Tensor targets_;
};

std::int64_t blocking_calls() { return trace::total(trace::Counter::blocking_calls); }

/// Sums of the batches' first and last columns and targets, made on the device while the loop goes on.
struct Seen {
  Tensor first, last, target;
};

/// Work before and after the use of each batch, so that the host is far ahead and memory that came back too early
/// would be seen.
std::vector<Seen> run(DataLoader& loader, const Tensor& a, const Tensor& b, int copies) {
  std::vector<Seen> seen;
  for (auto [input, target] : loader) {
    for (int i = 0; i < copies; ++i) raw::copy_(a, b);
    seen.push_back({raw::clone(raw::slice(input, 1, 0, 1, 1)), raw::clone(raw::slice(input, 1, kWidth - 1, kWidth, 1)),
                    raw::clone(target)});
  }
  return seen;
}

void expect_right(const std::vector<Seen>& seen, std::int64_t size, std::int64_t batch) {
  ASSERT_EQ(static_cast<std::int64_t>(seen.size()), (size + batch - 1) / batch);
  std::int64_t next = 0;
  for (const Seen& one : seen) {
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 0; i < batch && next < size; ++i) expected.push_back(next++);
    EXPECT_EQ(one.target.to_vector<std::int64_t>(), expected);
    EXPECT_EQ(one.first.to_vector<std::int64_t>(), expected);
    EXPECT_EQ(one.last.to_vector<std::int64_t>(), expected);
  }
}

TEST(CudaDataLoader, GivesTheRightNumbersOverEpochsWithTinyRings) {
  const Stream stream(kGpu);
  const StreamGuard guard(stream);
  const Tensor a = empty({4 << 20}, {DType::float32, kGpu});
  const Tensor b = ones({4 << 20}, {DType::float32, kGpu});
  for (const bool kept : {false, true}) {
    const Rows set(37, kept);
    const SequentialSampler sampler(37);
    for (const int workers : {0, 1, 2}) {
      for (const int prefetch : {1, 2}) {
        DataLoader loader(set, sampler, {.batch_size = 4, .device = kGpu, .workers = workers, .prefetch = prefetch});
        for (int epoch = 0; epoch < 3; ++epoch) {
          const std::vector<Seen> seen = run(loader, a, b, 20);
          expect_right(seen, 37, 4);
        }
      }
    }
  }
}

TEST(CudaDataLoader, DoesNotBlockAndAsksTheSystemForNothing) {
  const Rows set(40);
  const SequentialSampler sampler(40);
  const Tensor a = empty({1 << 20}, {DType::float32, kGpu});
  const Tensor b = ones({1 << 20}, {DType::float32, kGpu});
  for (const int workers : {0, 1}) {
    DataLoader loader(set, sampler, {.batch_size = 4, .device = kGpu, .workers = workers});
    for (int epoch = 0; epoch < 3; ++epoch) {
      bool first = true;
      for (auto [input, target] : loader) {
        // Every place of the ring gets its memory while the first batch is held.
        if (first) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        first = false;
        raw::copy_(a, b);
      }
      synchronize(kGpu);
    }
    const MemoryStats before = memory_stats(kGpu);
    const std::int64_t blocked = blocking_calls();
    for (int epoch = 0; epoch < 5; ++epoch) {
      for (auto [input, target] : loader) raw::copy_(a, b);
    }
    EXPECT_EQ(blocking_calls(), blocked) << workers << " workers";
    EXPECT_EQ(memory_stats(kGpu).system_allocations, before.system_allocations) << workers << " workers";
    EXPECT_LE(memory_stats(kGpu).in_use, before.in_use) << workers << " workers";
  }
}

TEST(CudaDataLoader, BatchesOutliveTheLoop) {
  const Rows set(12);
  const SequentialSampler sampler(12);
  std::vector<Batch> kept;
  {
    DataLoader loader(set, sampler, {.batch_size = 3, .device = kGpu, .prefetch = 1});
    for (auto batch : loader) {
      kept.push_back(batch);
      if (kept.size() == 3) break;
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto from = static_cast<std::int64_t>(3 * i);
    EXPECT_EQ(kept[i].target.to_vector<std::int64_t>(), (std::vector<std::int64_t>{from, from + 1, from + 2}));
    EXPECT_EQ(kept[i].input.device(), kGpu);
    EXPECT_EQ(raw::slice(kept[i].input, 1, 5, 6, 1).to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{from, from + 1, from + 2}));
  }
}

TEST(CudaDataLoader, ReadsOnAnotherStreamAreSafeWhenSaid) {
  const Stream reader(kGpu);
  const Tensor a = empty({16 << 20}, {DType::float32, kGpu});
  const Tensor b = ones({16 << 20}, {DType::float32, kGpu});
  synchronize(kGpu);
  const Rows set(24);
  const SequentialSampler sampler(24);
  DataLoader loader(set, sampler, {.batch_size = 4, .device = kGpu, .prefetch = 1});
  std::vector<Seen> seen;
  for (auto [input, target] : loader) {
    reader.view().wait_for(current_stream(kGpu));
    input.used_on(reader);
    target.used_on(reader);
    const StreamGuard guard(reader);
    for (int i = 0; i < 40; ++i) raw::copy_(a, b);
    seen.push_back({raw::clone(raw::slice(input, 1, 0, 1, 1)), raw::clone(raw::slice(input, 1, kWidth - 1, kWidth, 1)),
                    raw::clone(target)});
  }
  const StreamGuard guard(reader);
  expect_right(seen, 24, 4);
}

}  // namespace
}  // namespace ddp::data
