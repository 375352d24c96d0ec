#include "trace/output_file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "ddp/core/error.h"

namespace ddp::trace {
namespace {

[[noreturn]] void fail_to_write(const std::string& path, int error) {
  detail::fail<IoError>("cannot write the trace file '", path, "': ", std::generic_category().message(error));
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  // Two processes or threads that write one path must not share the temporary name.
  static constinit std::atomic<unsigned> serial{0};
  std::string name = concat(path_, ".tmp.", ::getpid(), ".", serial.fetch_add(1));
  file_.reset(std::fopen(name.c_str(), "wxe"));
  if (!file_) fail_to_write(path_, errno);
  temporary_ = std::move(name);
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::put(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) fail_to_write(path_, errno);
}

void OutputFile::commit() {
  if (std::fclose(file_.release()) != 0) fail_to_write(path_, errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_to_write(path_, errno);
  temporary_.clear();
}

}  // namespace ddp::trace
