#include "data/byte_file.h"

#include <zlib.h>

#include <algorithm>
#include <system_error>

#include "ddp/core/error.h"

namespace ddp::data {
namespace {

gzFile as_gz(void* handle) { return static_cast<gzFile>(handle); }

}  // namespace

ByteFile::ByteFile(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  DDP_CHECK(std::filesystem::exists(status), IoError, path.string(), ": no such file");
  DDP_CHECK(std::filesystem::is_regular_file(status), IoError, path.string(), ": not a regular file");
  bytes_on_disk_ = std::filesystem::file_size(path, error);
  DDP_CHECK(!error, IoError, path.string(), ": cannot read its size: ", error.message());
  handle_ = gzopen(path.c_str(), "rb");
  DDP_CHECK(handle_ != nullptr, IoError, path.string(), ": cannot be opened for reading");
  gzbuffer(as_gz(handle_), 1U << 18);
}

ByteFile::~ByteFile() { gzclose_r(as_gz(handle_)); }

std::size_t ByteFile::read(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto piece = static_cast<unsigned>(std::min<std::size_t>(out.size() - done, 1U << 30));
    const int got = gzread(as_gz(handle_), out.data() + done, piece);
    if (got > 0) done += static_cast<std::size_t>(got);
    if (got == static_cast<int>(piece)) continue;
    int code = Z_OK;
    const char* text = gzerror(as_gz(handle_), &code);
    // Z_BUF_ERROR is a gzip stream that ends too early: the caller reports it with the bytes it expected, or by
    // `ends_early` when only the stream's checksum is missing.
    ends_early_ = ends_early_ || code == Z_BUF_ERROR;
    DDP_CHECK(code == Z_OK || code == Z_BUF_ERROR, IoError, path_.string(), ": cannot be read after ", done,
              " bytes of this part: ", text);
    if (got <= 0) break;
  }
  return done;
}

std::uint64_t ByteFile::upper_bound() const {
  // deflate's best ratio is 1032:1.
  return gzdirect(as_gz(handle_)) != 0 ? bytes_on_disk_ : bytes_on_disk_ * 1032;
}

void check_indices(const char* dataset, std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    DDP_CHECK(index >= 0 && index < size, InvalidArgument, dataset, ": index ", index, " is outside [0, ", size, ")");
  }
}

void check_labels(std::span<const std::uint8_t> labels, int classes, const std::filesystem::path& path) {
  const auto bad =
      std::find_if(labels.begin(), labels.end(), [classes](std::uint8_t label) { return label >= classes; });
  DDP_CHECK(bad == labels.end(), IoError, path.string(), ": label ", static_cast<int>(*bad), " at index ",
            bad - labels.begin(), "; labels must be in [0, ", classes, ")");
}

}  // namespace ddp::data
