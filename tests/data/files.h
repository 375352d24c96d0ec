#pragma once

#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/expect_error.h"

namespace ddp::test {

using Bytes = std::vector<std::uint8_t>;

/// A folder of its own that is removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ddp-data-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + pattern);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_plain(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

inline Bytes read_plain(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_gzip(const std::filesystem::path& path, const Bytes& bytes) {
  gzFile out = gzopen(path.c_str(), "wb");
  if (out == nullptr ||
      gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size())) != static_cast<int>(bytes.size()) ||
      gzclose(out) != Z_OK) {
    throw std::runtime_error("cannot write " + path.string());
  }
}

/// An IDX file: header for `sizes`, then the elements.
inline Bytes idx(std::initializer_list<std::uint32_t> sizes, const Bytes& elements, std::uint8_t type = 8) {
  Bytes result = {0, 0, type, static_cast<std::uint8_t>(sizes.size())};
  for (const std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) result.push_back(static_cast<std::uint8_t>(size >> shift));
  }
  result.insert(result.end(), elements.begin(), elements.end());
  return result;
}

}  // namespace ddp::test
