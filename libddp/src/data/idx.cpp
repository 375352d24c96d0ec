#include <array>
#include <cstdlib>
#include <limits>

#include "core/env.h"
#include "data/byte_file.h"
#include "ddp/core/error.h"
#include "ddp/data/dataset.h"

/// IDX, the format of MNIST: 0, 0, element type, number of dimensions; the sizes as big-endian 32-bit numbers; the
/// elements in row-major order (http://yann.lecun.com/exdb/mnist/).
namespace ddp::data {
namespace {

constexpr const char* kSystemFolder = "/usr/share/datasets/fashion-mnist";
constexpr int kClasses = 10;

struct Names {
  const char* images;
  const char* labels;
};
Names names_of(Split split) {
  return split == Split::train ? Names{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}
                               : Names{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
}

/// The file of that name, plain or packed; empty when there is neither.
std::filesystem::path find(const std::filesystem::path& root, const char* name) {
  std::error_code ignored;
  std::filesystem::path plain = root / name;
  if (std::filesystem::exists(plain, ignored)) return plain;
  std::filesystem::path packed = root / (std::string(name) + ".gz");
  if (std::filesystem::exists(packed, ignored)) return packed;
  return {};
}

std::filesystem::path require(const std::filesystem::path& root, const char* name) {
  std::filesystem::path path = find(root, name);
  DDP_CHECK(!path.empty(), IoError, root.string(), ": has neither ", name, " nor ", name, ".gz");
  return path;
}

}  // namespace

IdxFile read_idx(const std::filesystem::path& path) {
  ByteFile file(path);
  const std::string name = path.string();
  std::array<std::uint8_t, 4> magic{};
  const std::size_t got = file.read(magic);
  DDP_CHECK(got == magic.size(), IoError, name, ": truncated: the IDX header starts with 4 bytes, found ", got);
  DDP_CHECK(magic[0] == 0 && magic[1] == 0 && magic[3] >= 1 && magic[3] <= Dims::kMaxRank, IoError, name,
            ": not an IDX file: it starts with bytes ", static_cast<int>(magic[0]), " ", static_cast<int>(magic[1]),
            " ", static_cast<int>(magic[2]), " ", static_cast<int>(magic[3]), "; expected 0 0 type dimensions(1-8)");
  DDP_CHECK(magic[2] == 8, IoError, name, ": IDX element type ", static_cast<int>(magic[2]),
            " is not supported; expected 8 (unsigned byte)");

  IdxFile result;
  std::vector<std::uint8_t> header(std::size_t{4} * magic[3]);
  const std::size_t header_got = file.read(header);
  DDP_CHECK(header_got == header.size(), IoError, name, ": truncated: expected ", header.size(),
            " bytes of sizes, found ", header_got);
  std::uint64_t expected = 1;
  for (std::size_t i = 0; i < header.size(); i += 4) {
    const std::uint64_t size = (std::uint64_t{header[i]} << 24) | (std::uint64_t{header[i + 1]} << 16) |
                               (std::uint64_t{header[i + 2]} << 8) | std::uint64_t{header[i + 3]};
    result.sizes.push_back(static_cast<std::int64_t>(size));
    DDP_CHECK(size == 0 || expected <= std::numeric_limits<std::uint64_t>::max() / size, IoError, name,
              ": the sizes in its header are too large");
    expected *= size;
  }
  DDP_CHECK(expected <= file.upper_bound(), IoError, name, ": truncated: expected ", expected,
            " bytes of elements, the file can hold at most ", file.upper_bound());
  result.bytes.resize(expected);
  const std::size_t found = file.read(result.bytes);
  DDP_CHECK(found == expected, IoError, name, ": truncated: expected ", expected, " bytes of elements, found ", found);
  std::array<std::uint8_t, 4096> rest{};
  std::uint64_t trailing = 0;
  for (std::size_t more = 0; (more = file.read(rest)) > 0;) trailing += more;
  DDP_CHECK(trailing == 0, IoError, name, ": ", trailing, " trailing bytes: expected ", expected,
            " bytes of elements, found ", expected + trailing);
  DDP_CHECK(!file.ends_early(), IoError, name, ": truncated: the gzip stream ends before its checksum");
  return result;
}

IdxImages::IdxImages(const std::filesystem::path& root, Split split, float mean, float deviation)
    : scale_(1.0F / (255.0F * deviation)), shift_(-mean / deviation) {
  const Names names = names_of(split);
  const std::filesystem::path image_path = require(root, names.images);
  const std::filesystem::path label_path = require(root, names.labels);
  IdxFile images = read_idx(image_path);
  DDP_CHECK(images.sizes.size() == 3, IoError, image_path.string(), ": has ", images.sizes.size(),
            " dimensions; images need 3 (count, rows, columns)");
  IdxFile labels = read_idx(label_path);
  DDP_CHECK(labels.sizes.size() == 1, IoError, label_path.string(), ": has ", labels.sizes.size(),
            " dimensions; labels need 1");
  DDP_CHECK(images.sizes[0] == labels.sizes[0], IoError, image_path.string(), " has ", images.sizes[0], " images but ",
            label_path.string(), " has ", labels.sizes[0], " labels");
  check_labels(labels.bytes, kClasses, label_path);
  count_ = images.sizes[0];
  rows_ = images.sizes[1];
  columns_ = images.sizes[2];
  pixels_ = std::move(images.bytes);
  labels_ = std::move(labels.bytes);
}

Batch IdxImages::get_batch(std::span<const std::int64_t> indices) const {
  check_indices("IdxImages", indices, count_);
  const auto batch = static_cast<std::int64_t>(indices.size());
  const std::int64_t plane = rows_ * columns_;
  Batch result{empty({batch, 1, rows_, columns_}), empty({batch}, {.dtype = DType::int64})};
  auto* input = result.input.data_ptr<float>();
  auto* target = result.target.data_ptr<std::int64_t>();
  const float scale = scale_;
  const float shift = shift_;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t index = indices[static_cast<std::size_t>(b)];
    const std::uint8_t* from = pixels_.data() + index * plane;
    float* to = input + b * plane;
    for (std::int64_t i = 0; i < plane; ++i) to[i] = static_cast<float>(from[i]) * scale + shift;
    target[b] = labels_[static_cast<std::size_t>(index)];
  }
  return result;
}

std::filesystem::path fashion_mnist_root() {
  const std::optional<std::string> folder = core::env_string("DDP_DATA_DIR");
  const auto has_it = [](const std::filesystem::path& root) {
    return !find(root, names_of(Split::train).images).empty();
  };
  if (folder) {
    DDP_CHECK(has_it(*folder), IoError, "Fashion-MNIST is not in DDP_DATA_DIR='", *folder, "' (no ",
              names_of(Split::train).images, " or .gz there); unset it to use ", kSystemFolder);
    return *folder;
  }
  DDP_CHECK(has_it(kSystemFolder), IoError, "Fashion-MNIST is not in ", kSystemFolder,
            " (Debian package dataset-fashion-mnist) and DDP_DATA_DIR is not set");
  return kSystemFolder;
}

}  // namespace ddp::data
