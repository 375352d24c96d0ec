#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "ddp/core/error.h"
#include "ddp/trace/recorder.h"

namespace ddp::trace {
namespace {

using Json = nlohmann::ordered_json;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Removes the temporary file unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

std::string line(const Json& object) {
  // Labels come from the user and may not be valid UTF-8.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

Json to_json(const Span& span, int rank) {
  return {{"event", "span"},   {"rank", rank},      {"kind", name(span.kind)},   {"label", span.label},
          {"lane", span.lane}, {"step", span.step}, {"begin_ns", span.begin_ns}, {"end_ns", span.end_ns}};
}

Json counters_to_json(int rank) {
  Json object = {{"event", "counters"}, {"rank", rank}, {"steps", current_step()}};
  const CounterSnapshot values = snapshot();
  for (int i = 0; i < static_cast<int>(Counter::count_); ++i) {
    const auto counter = static_cast<Counter>(i);
    object[std::string(name(counter))] = values[counter];
  }
  return object;
}

[[noreturn]] void fail_to_write(const std::string& path, int error) {
  detail::fail<IoError>("cannot write the trace file '", path, "': ", std::generic_category().message(error));
}

}  // namespace

void write_json_lines(const std::string& path, int rank) {
  // Two processes or threads that write one path must not share the temporary name.
  static constinit std::atomic<unsigned> serial{0};
  const std::string temporary_path = concat(path, ".tmp.", ::getpid(), ".", serial.fetch_add(1));
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(temporary_path.c_str(), "wxe"));
  if (!file) fail_to_write(path, errno);
  TemporaryFile temporary(temporary_path);

  const auto put = [&](const Json& object) {
    const std::string text = line(object);
    if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) fail_to_write(path, errno);
  };
  for (const Span& span : spans()) put(to_json(span, rank));
  put(counters_to_json(rank));

  if (std::fclose(file.release()) != 0) fail_to_write(path, errno);
  if (std::rename(temporary.path().c_str(), path.c_str()) != 0) fail_to_write(path, errno);
  temporary.keep();
}

}  // namespace ddp::trace
