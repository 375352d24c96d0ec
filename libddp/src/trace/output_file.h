#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace ddp::trace {

/// A file that appears under its name when it is complete: written beside it under a temporary name, renamed by
/// `commit`. Without that the temporary file is removed. Throws IoError naming the path.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void put(std::string_view text);
  void commit();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::string temporary_;  // empty once renamed
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ddp::trace
