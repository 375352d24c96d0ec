#include <cmath>
#include <numeric>
#include <thread>

#include "data/files.h"
#include "ddp/core/error.h"
#include "ddp/data/dataset.h"

namespace ddp::data {
namespace {

using test::Bytes;
using test::expect_error;
using test::TempFolder;

using Indices = std::vector<std::int64_t>;

/// Records with that many examples; example i has label (first + i) % 10 and pixel p of channel c is
/// (17*(first+i) + 5*c + p) % 256.
Bytes cifar(int first, int count) {
  Bytes result;
  for (int i = first; i < first + count; ++i) {
    result.push_back(static_cast<std::uint8_t>(i % 10));
    for (int c = 0; c < 3; ++c) {
      for (int p = 0; p < 1024; ++p) result.push_back(static_cast<std::uint8_t>((17 * i + 5 * c + p) % 256));
    }
  }
  return result;
}

TEST(CIFAR10, ReadsAllBatchesInOrderAndNormalisesByChannel) {
  for (const bool nested : {false, true}) {
    const TempFolder root;
    const std::filesystem::path folder = nested ? root / "cifar-10-batches-bin" : root.path();
    std::filesystem::create_directories(folder);
    for (int i = 0; i < 5; ++i) {
      test::write_plain(folder / ("data_batch_" + std::to_string(i + 1) + ".bin"), cifar(3 * i, 3));
    }
    test::write_plain(folder / "test_batch.bin", cifar(100, 2));
    const CIFAR10 train(root.path());
    EXPECT_EQ(train.size(), 15);
    EXPECT_EQ(CIFAR10(root.path(), Split::test).size(), 2);
    const Batch batch = train.get_batch(Indices{14, 4});
    EXPECT_EQ(batch.input.sizes(), (Dims{2, 3, 32, 32}));
    EXPECT_EQ(batch.target.to_vector<std::int64_t>(), (Indices{4, 4}));
    const std::vector<float> values = batch.input.to_vector<float>();
    const double mean[] = {0.4914, 0.4822, 0.4465};
    const double deviation[] = {0.2470, 0.2435, 0.2616};
    for (std::size_t b = 0; b < 2; ++b) {
      for (int c = 0; c < 3; ++c) {
        for (int p = 0; p < 1024; ++p) {
          const double pixel = (17 * (b == 0 ? 14 : 4) + 5 * c + p) % 256;
          ASSERT_NEAR(values[b * 3072 + static_cast<std::size_t>(c * 1024 + p)], (pixel / 255 - mean[c]) / deviation[c],
                      1e-6);
        }
      }
    }
  }
}

TEST(CIFAR10, NamesWhatIsWrong) {
  const TempFolder root;
  const std::string file = (root / "test_batch.bin").string();
  const auto load = [&root] { CIFAR10(root.path(), Split::test); };
  expect_error<IoError>(load, {file, "no such file"});
  test::write_plain(file, {});
  expect_error<IoError>(load, {file, "found 0"});
  Bytes bytes = cifar(0, 4);
  bytes.resize(bytes.size() - 10);
  test::write_plain(file, bytes);
  expect_error<IoError>(load, {file, "multiple of 3073", "found 12282", "3063 beyond 3 examples"});
  bytes = cifar(0, 4);
  bytes[3 * 3073] = 11;
  test::write_plain(file, bytes);
  expect_error<IoError>(load, {file, "label 11 at index 3"});
}

TEST(TensorDataset, GathersRowsOfAnyTypeAndStride) {
  const Tensor inputs = tensor<float>(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}, {4, 2});
  const Tensor targets = tensor<std::int64_t>({10, 11, 12, 13});
  const TensorDataset set(inputs, targets);
  EXPECT_EQ(set.size(), 4);
  const Batch batch = set.get_batch(Indices{3, 0, 3});
  EXPECT_EQ(batch.input.sizes(), (Dims{3, 2}));
  EXPECT_EQ(batch.input.to_vector<float>(), (std::vector<float>{6, 7, 0, 1, 6, 7}));
  EXPECT_EQ(batch.target.to_vector<std::int64_t>(), (Indices{13, 10, 13}));
  expect_error<InvalidArgument>([&set] { set.get_batch(Indices{4}); }, {"index 4", "[0, 4)"});
  EXPECT_EQ(set.get_batch(Indices{}).input.sizes(), (Dims{0, 2}));

  // The transposed view of a 2x3: rows are its columns.
  std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  const Tensor strided = from_blob(memory.data(), {3, 2}, {}, {1, 3});
  const TensorDataset columns(strided, tensor<float>({0.5F, 1.5F, 2.5F}));
  EXPECT_EQ(columns.get_batch(Indices{2, 1}).input.to_vector<float>(), (std::vector<float>{3, 6, 2, 5}));
  EXPECT_EQ(columns.get_batch(Indices{2}).target.to_vector<float>(), (std::vector<float>{2.5F}));
}

TEST(TensorDataset, RefusesSizesThatDoNotFit) {
  expect_error<InvalidArgument>([] { TensorDataset(zeros({4, 2}), zeros({3})); }, {"[4, 2]", "[3]"});
  expect_error<InvalidArgument>([] { TensorDataset(zeros({}), zeros({})); }, {"[]"});
  expect_error<InvalidArgument>([] { TensorDataset(Tensor(), zeros({3})); }, {"inputs", "undefined"});
}

TEST(SyntheticImages, IsAFunctionOfSeedAndIndexOnly) {
  const SyntheticImages a(1000, {1, 6, 5}, 10, 7);
  const SyntheticImages b(500, {1, 6, 5}, 10, 7);
  const SyntheticImages other(1000, {1, 6, 5}, 10, 8);
  const Batch one = a.get_batch(Indices{3, 499, 3});
  EXPECT_EQ(one.input.sizes(), (Dims{3, 1, 6, 5}));
  EXPECT_EQ(one.input.to_vector<float>(), b.get_batch(Indices{3, 499, 3}).input.to_vector<float>());
  EXPECT_NE(one.input.to_vector<float>(), other.get_batch(Indices{3, 499, 3}).input.to_vector<float>());
  const std::vector<float> values = one.input.to_vector<float>();
  EXPECT_TRUE(std::equal(values.begin(), values.begin() + 30, values.begin() + 60));
  EXPECT_FALSE(std::equal(values.begin(), values.begin() + 30, values.begin() + 30));
  expect_error<InvalidArgument>([&b] { b.get_batch(Indices{500}); }, {"index 500", "[0, 500)"});
  expect_error<InvalidArgument>([] { SyntheticImages(10, {3, 0}, 2); }, {"[3, 0]"});
  expect_error<InvalidArgument>([] { SyntheticImages(10, {3}, 0); }, {"classes is 0"});
}

TEST(SyntheticImages, HasTheStatedStatisticsAndCanBeLearnt) {
  constexpr std::int64_t kCount = 4000;
  constexpr std::int64_t kClasses = 5;
  constexpr std::size_t kNumel = 64;
  const SyntheticImages set(kCount, {kNumel}, kClasses, 3);
  Indices all(kCount);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = set.get_batch(all);
  const std::vector<float> x = batch.input.to_vector<float>();
  const std::vector<std::int64_t> y = batch.target.to_vector<std::int64_t>();
  std::vector<std::vector<double>> mean(kClasses, std::vector<double>(kNumel));
  std::vector<std::int64_t> count(kClasses);
  for (std::size_t n = 0; n < kCount; ++n) {
    ASSERT_TRUE(y[n] >= 0 && y[n] < kClasses);
    ++count[static_cast<std::size_t>(y[n])];
    for (std::size_t i = 0; i < kNumel; ++i) mean[static_cast<std::size_t>(y[n])][i] += x[n * kNumel + i];
  }
  for (std::size_t c = 0; c < kClasses; ++c) {
    EXPECT_NEAR(static_cast<double>(count[c]), 800, 130);  // 5 standard deviations of a binomial
    for (double& value : mean[c]) value /= static_cast<double>(count[c]);
  }
  double variance = 0;
  std::int64_t right = 0;
  for (std::size_t n = 0; n < kCount; ++n) {
    std::vector<double> distance(kClasses);
    for (std::size_t c = 0; c < kClasses; ++c) {
      for (std::size_t i = 0; i < kNumel; ++i) distance[c] += std::pow(x[n * kNumel + i] - mean[c][i], 2);
    }
    variance += distance[static_cast<std::size_t>(y[n])];
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == y[n] ? 1 : 0;
  }
  EXPECT_NEAR(variance / (kCount * kNumel), 2.0 / 3, 0.01);  // 256,000 draws, deviation of the estimate 0.001
  EXPECT_GE(right, kCount * 99 / 100);                       // nearest class mean
}

TEST(SyntheticImages, ManyThreadsGetTheSame) {
  const SyntheticImages set(256, {3, 8, 8}, 10, 1);
  Indices all(256);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<float> expected = set.get_batch(all).input.to_vector<float>();
  std::vector<std::vector<float>> got(4);
  std::vector<std::thread> threads;
  for (auto& result : got) threads.emplace_back([&] { result = set.get_batch(all).input.to_vector<float>(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : got) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace ddp::data
