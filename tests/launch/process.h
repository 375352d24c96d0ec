#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ddp::test {

/// Exists and has not ended: a process that waits to be reaped by somebody else counts as ended.
inline bool is_alive(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  return text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

/// Whether `condition` comes true within a time that only a fault exceeds.
template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

inline bool is_gone_soon(pid_t pid) {
  return eventually([&] { return !is_alive(pid); });
}

/// The numbers that follow `word` in a text.
inline std::vector<pid_t> numbers_after(const std::string& text, const std::string& word) {
  std::vector<pid_t> result;
  for (std::size_t at = text.find(word + " "); at != std::string::npos; at = text.find(word + " ", at + 1)) {
    result.push_back(std::atoi(text.c_str() + at + word.size() + 1));
  }
  return result;
}

/// A command started in the background, its output in files.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command) {
    static int serial = 0;
    const std::string stem = "/tmp/ddp_launch_test." + std::to_string(::getpid()) + "." + std::to_string(serial++);
    output_path_ = stem + ".out";
    errors_path_ = stem + ".err";
    std::vector<char*> arguments;
    for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) {
      ::dup2(::open(output_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDOUT_FILENO);
      ::dup2(::open(errors_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDERR_FILENO);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
  }
  ~Process() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::unlink(output_path_.c_str());
    ::unlink(errors_path_.c_str());
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  std::string output() const { return read(output_path_); }
  std::string errors() const { return read(errors_path_); }
  void signal(int number) const { ::kill(pid_, number); }

  /// As a shell's: exit code, or 128 + signal.
  int wait() {
    int status = 0;
    if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) {
      throw std::runtime_error("the process does not end");
    }
    ended_ = true;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  /// Waits until the output has `count` lines with `word`, and returns the numbers after it.
  std::vector<pid_t> wait_for(const std::string& word, std::size_t count) const {
    if (!eventually([&] { return numbers_after(output(), word).size() >= count; })) {
      throw std::runtime_error("no '" + word + "' in: " + output() + errors());
    }
    return numbers_after(output(), word);
  }

 private:
  static std::string read(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  pid_t pid_ = 0;
  bool ended_ = false;
  std::string output_path_;
  std::string errors_path_;
};

}  // namespace ddp::test
