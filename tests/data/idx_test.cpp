#include <cstdlib>
#include <numeric>

#include "data/files.h"
#include "ddp/core/error.h"
#include "ddp/data/dataset.h"

namespace ddp::data {
namespace {

using test::Bytes;
using test::expect_error;
using test::idx;
using test::TempFolder;

Bytes ramp(std::size_t n) {
  Bytes result(n);
  for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<std::uint8_t>(7 * i + 3);
  return result;
}

TEST(Idx, ReadsPlainAndGzipAlike) {
  const TempFolder folder;
  const Bytes elements = ramp(2 * 3 * 5);
  test::write_plain(folder / "a", idx({2, 3, 5}, elements));
  test::write_gzip(folder / "a.gz", idx({2, 3, 5}, elements));
  for (const char* name : {"a", "a.gz"}) {
    const IdxFile file = read_idx(folder / name);
    EXPECT_EQ(file.sizes, (std::vector<std::int64_t>{2, 3, 5}));
    EXPECT_EQ(file.bytes, elements);
  }
  test::write_plain(folder / "none", idx({0, 4}, {}));
  EXPECT_TRUE(read_idx(folder / "none").bytes.empty());
}

TEST(Idx, NamesWhatIsWrong) {
  const TempFolder folder;
  const auto plain = [&folder](const Bytes& bytes) {
    test::write_plain(folder / "file", bytes);
    return [&folder] { read_idx(folder / "file"); };
  };
  const std::string file = (folder / "file").string();
  expect_error<IoError>([&folder] { read_idx(folder / "absent"); }, {(folder / "absent").string(), "no such file"});
  expect_error<IoError>([&folder] { read_idx(folder.path()); }, {folder.path().string(), "not a regular file"});
  expect_error<IoError>(plain({}), {file, "truncated", "found 0"});
  expect_error<IoError>(plain({0, 0, 8}), {file, "truncated", "found 3"});
  expect_error<IoError>(plain({0, 0, 8, 2, 0, 0, 0, 1, 0}), {file, "expected 8 bytes of sizes, found 5"});
  expect_error<IoError>(plain({'P', 'K', 3, 4, 0, 0}), {file, "not an IDX file", "80 75 3 4"});
  expect_error<IoError>(plain({0, 0, 8, 9, 0, 0}), {file, "not an IDX file", "0 0 8 9"});
  expect_error<IoError>(plain(idx({2}, {1, 2}, 13)), {file, "element type 13", "expected 8"});
  expect_error<IoError>(plain(idx({40}, ramp(37))), {file, "truncated: expected 40 bytes of elements, found 37"});
  expect_error<IoError>(plain(idx({4}, ramp(9))), {file, "5 trailing bytes", "expected 4 bytes of elements, found 9"});
  // A header that claims 2^64 elements, and one that claims more than the file could hold: no memory is taken.
  expect_error<IoError>(plain(idx({0xffffffffU, 0xffffffffU, 0xffffffffU}, {})), {file, "too large"});
  expect_error<IoError>(plain(idx({0xffffffffU, 0xfffffU}, {1})), {file, "truncated", "at most"});
}

TEST(Idx, NamesWhatIsWrongWithGzip) {
  const TempFolder folder;
  const std::string file = (folder / "file.gz").string();
  Bytes noise(20000);  // hardly compressible, so that half of the file is about half of the elements
  std::uint32_t state = 12345;
  for (std::uint8_t& byte : noise) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  test::write_gzip(folder / "file.gz", idx({20000}, noise));
  Bytes packed = test::read_plain(folder / "file.gz");
  const Bytes whole = packed;
  packed.resize(packed.size() / 2);
  test::write_plain(folder / "file.gz", packed);
  expect_error<IoError>([&folder] { read_idx(folder / "file.gz"); }, {file, "truncated: expected 20000 bytes"});

  packed = whole;
  packed[packed.size() - 6] ^= 0x55;  // the checksum in the gzip trailer
  test::write_plain(folder / "file.gz", packed);
  expect_error<IoError>([&folder] { read_idx(folder / "file.gz"); }, {file, "cannot be read"});

  packed = whole;
  packed.resize(packed.size() - 3);  // all elements are there, the trailer is not
  test::write_plain(folder / "file.gz", packed);
  expect_error<IoError>([&folder] { read_idx(folder / "file.gz"); }, {file, "truncated", "checksum"});

  test::write_gzip(folder / "file.gz", idx({4}, ramp(6)));
  expect_error<IoError>([&folder] { read_idx(folder / "file.gz"); }, {file, "2 trailing bytes"});
}

struct Files {
  TempFolder folder;
  Bytes pixels = ramp(3 * 2 * 4);
  Bytes labels = {9, 0, 5};
  void write(bool gzip) const {
    const auto put = gzip ? test::write_gzip : test::write_plain;
    const std::string end = gzip ? ".gz" : "";
    put(folder / ("train-images-idx3-ubyte" + end), idx({3, 2, 4}, pixels));
    put(folder / ("train-labels-idx1-ubyte" + end), idx({static_cast<std::uint32_t>(labels.size())}, labels));
  }
};

TEST(IdxImages, NormalisesAndGathersInTheOrderAsked) {
  for (const bool gzip : {false, true}) {
    Files files;
    files.write(gzip);
    const FashionMNIST images(files.folder.path());
    ASSERT_EQ(images.size(), 3);
    const std::vector<std::int64_t> order = {2, 0, 2};
    const Batch batch = images.get_batch(order);
    EXPECT_EQ(batch.input.sizes(), (Dims{3, 1, 2, 4}));
    EXPECT_EQ(batch.target.to_vector<std::int64_t>(), (std::vector<std::int64_t>{5, 9, 5}));
    const std::vector<float> values = batch.input.to_vector<float>();
    for (std::size_t b = 0; b < 3; ++b) {
      for (std::size_t i = 0; i < 8; ++i) {
        const double pixel = files.pixels[static_cast<std::size_t>(order[b]) * 8 + i];
        // Two float roundings of numbers up to 3.
        EXPECT_NEAR(values[b * 8 + i], (pixel / 255.0 - 0.2860) / 0.3530, 1e-6);
      }
    }
  }
}

TEST(IdxImages, RefusesBadLabelsCountsAndIndices) {
  Files files;
  files.labels = {1, 2, 10};
  files.write(false);
  expect_error<IoError>([&files] { MNIST(files.folder.path()); },
                        {(files.folder / "train-labels-idx1-ubyte").string(), "label 10 at index 2", "[0, 10)"});
  files.labels = {1, 2, 3, 4};
  files.write(false);
  expect_error<IoError>([&files] { MNIST(files.folder.path()); }, {"3 images", "4 labels"});
  files.labels = {1, 2, 3};
  files.write(false);
  const MNIST images(files.folder.path());
  for (const std::int64_t bad : {-1, 3}) {
    expect_error<InvalidArgument>([&images, bad] { images.get_batch(std::vector<std::int64_t>{0, bad}); },
                                  {"index " + std::to_string(bad), "[0, 3)"});
  }
  expect_error<IoError>([&files] { MNIST(files.folder.path(), Split::test); },
                        {files.folder.path().string(), "t10k-images-idx3-ubyte.gz"});
}

TEST(FashionMnistRoot, ASetVariableDecides) {
  const TempFolder empty;
  Files files;
  files.write(true);
  const char* before = std::getenv("DDP_DATA_DIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("DDP_DATA_DIR", files.folder.path().c_str(), 1);
  EXPECT_EQ(fashion_mnist_root(), files.folder.path());
  setenv("DDP_DATA_DIR", empty.path().c_str(), 1);
  expect_error<IoError>([] { fashion_mnist_root(); },
                        {"DDP_DATA_DIR='" + empty.path().string(), "/usr/share/datasets/fashion-mnist"});
  if (before == nullptr) {
    unsetenv("DDP_DATA_DIR");
  } else {
    setenv("DDP_DATA_DIR", kept.c_str(), 1);
  }
}

TEST(FashionMNIST, TheRealFilesWhereInstalled) {
  const std::filesystem::path root = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "Debian package dataset-fashion-mnist is not installed";
  const FashionMNIST test(root, Split::test);
  ASSERT_EQ(test.size(), 10000);
  std::vector<std::int64_t> first(10);
  std::iota(first.begin(), first.end(), 0);
  const Batch batch = test.get_batch(first);
  EXPECT_EQ(batch.target.to_vector<std::int64_t>(), (std::vector<std::int64_t>{9, 2, 1, 1, 6, 1, 4, 6, 5, 7}));
  // Pixel sums of the first and last image (33456 and 24390), taken with Python's gzip module.
  const std::vector<float> values = test.get_batch(std::vector<std::int64_t>{0, 9999}).input.to_vector<float>();
  for (const auto& [at, expected] : {std::pair<std::size_t, double>{0, 33456}, {784, 24390}}) {
    double sum = 0;
    for (std::size_t i = 0; i < 784; ++i) sum += values[at + i] * 0.3530 + 0.2860;
    EXPECT_NEAR(sum * 255, expected, 0.1);  // 784 float roundings of 1e-7 relative
  }
}

}  // namespace
}  // namespace ddp::data
