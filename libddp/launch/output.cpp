#include "launch/output.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ddp::launch {

void LineSplitter::feed(std::string_view bytes, const Emit& emit) {
  const auto end_line = [&] {
    emit(line_);
    line_.clear();
  };
  while (!bytes.empty()) {
    const Return before = std::exchange(last_, Return::none);
    if (before != Return::none && bytes.front() == '\n') {  // "\r\n" is one end
      if (before == Return::at_start) end_line();
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t length = std::min(bytes.find_first_of("\r\n"), bytes.size());
    const std::size_t taken = std::min(length, kMaxLine - line_.size());
    line_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (taken < length) {
      end_line();
    } else if (!bytes.empty()) {
      if (bytes.front() == '\n') {
        end_line();
      } else if (line_.empty()) {  // "\r50%": it comes before the text and ends nothing
        last_ = Return::at_start;
      } else {
        end_line();
        last_ = Return::after_text;
      }
      bytes.remove_prefix(1);
    }
  }
}

void LineSplitter::finish(const Emit& emit) {
  if (line_.empty()) return;
  emit(line_);
  line_.clear();
}

void OutputQueue::add(std::string_view prefix, std::string_view line) {
  if (closed_) return;
  text_ += prefix;
  text_ += line;
  text_ += '\n';
}

bool OutputQueue::write_some() noexcept {
  if (text_.empty()) return false;
  const std::size_t length = std::min<std::size_t>(text_.size() - written_, PIPE_BUF);
  const ssize_t done = ::write(fd_, text_.data() + written_, length);
  if (done >= 0) {
    written_ += static_cast<std::size_t>(done);
  } else if (errno != EINTR && errno != EAGAIN) {
    closed_ = true;  // the run goes on without a listener
  }
  if (closed_ || written_ == text_.size()) {
    text_.clear();
    written_ = 0;
  } else if (written_ > 256 * 1024) {
    text_.erase(0, written_);
    written_ = 0;
  }
  return done > 0;
}

}  // namespace ddp::launch
