#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace ddp::launch {

/// Cuts a stream of bytes into lines. A line ends with "\n", "\r\n" or "\r" (progress lines); one
/// longer than 64 KiB is cut there.
class LineSplitter {
 public:
  using Emit = std::function<void(std::string_view line)>;
  static constexpr std::size_t kMaxLine = 64 * 1024;

  void feed(std::string_view bytes, const Emit& emit);
  /// The end of the stream: what is left is a line.
  void finish(const Emit& emit);

 private:
  std::string line_;
  enum class Return { none, at_start, after_text };
  Return last_ = Return::none;  // whether the last byte was "\r", and where in its line
};

/// Text on its way to a file descriptor that may be slow. Written in pieces that a pipe takes without
/// blocking once poll says so.
class OutputQueue {
 public:
  explicit OutputQueue(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  void add(std::string_view prefix, std::string_view line);
  bool empty() const { return text_.empty(); }
  /// More than this should not be queued.
  bool full() const { return text_.size() > 1024 * 1024; }
  /// After poll reported the descriptor writable, or in error. Text for a reader that is gone is dropped.
  /// False when nothing could be written.
  bool write_some() noexcept;

 private:
  int fd_;
  std::string text_;
  std::size_t written_ = 0;
  bool closed_ = false;
};

}  // namespace ddp::launch
