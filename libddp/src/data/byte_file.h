#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace ddp::data {

/// Reads a file's contents from front to back, unpacking gzip on the way. Errors are IoError with the path.
class ByteFile {
 public:
  explicit ByteFile(const std::filesystem::path& path);
  ~ByteFile();
  ByteFile(const ByteFile&) = delete;
  ByteFile& operator=(const ByteFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Fills as much of `out` as there is; returns the bytes. A gzip stream cut short counts as its end; a
  /// damaged one throws.
  std::size_t read(std::span<std::uint8_t> out);
  /// True when a read has come to the end of a gzip stream that is cut short: what was read has not been held against
  /// the stream's checksum.
  bool ends_early() const { return ends_early_; }
  /// The most bytes that contents of this length on disk can unpack to: no memory is taken for a header that
  /// claims more.
  std::uint64_t upper_bound() const;

 private:
  std::filesystem::path path_;
  void* handle_ = nullptr;  // gzFile; zlib stays out of this header
  std::uint64_t bytes_on_disk_ = 0;
  bool ends_early_ = false;
};

/// Throws InvalidArgument naming dataset, index and size unless all indices are in [0, size).
void check_indices(const char* dataset, std::span<const std::int64_t> indices, std::int64_t size);

/// Throws IoError naming label, place and file unless all labels are below `classes`.
void check_labels(std::span<const std::uint8_t> labels, int classes, const std::filesystem::path& path);

}  // namespace ddp::data
