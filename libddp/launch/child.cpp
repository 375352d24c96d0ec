#include "launch/child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ddp/core/error.h"
#include "launch/spawn.h"

namespace ddp::launch {
namespace {

enum class Step : int { streams, affinity, exec };

struct StartError {
  Step step;
  int error;
};

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const auto& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Everything the child needs, made before the fork: in a process with several threads only
// async-signal-safe calls are allowed between fork and exec.
struct Prepared {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const cpu_set_t* cpus;  // null: not bound
  std::size_t cpus_size;
  const sigset_t* mask;
  pid_t parent;
  int input, output, errors, status;
};

[[noreturn]] void give_up(const Prepared& prepared, Step step) {
  const StartError report{step, errno};
  // If this cannot be written the parent sees a rank that ended with 127.
  [[maybe_unused]] const auto written = ::write(prepared.status, &report, sizeof report);
  ::_exit(127);
}

[[noreturn]] void become_rank(const Prepared& prepared) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != prepared.parent) ::_exit(127);  // it died before the line above
  if (::dup2(prepared.input, STDIN_FILENO) < 0 || ::dup2(prepared.output, STDOUT_FILENO) < 0 ||
      ::dup2(prepared.errors, STDERR_FILENO) < 0) {
    give_up(prepared, Step::streams);
  }
  if (prepared.cpus != nullptr && ::sched_setaffinity(0, prepared.cpus_size, prepared.cpus) != 0) {
    give_up(prepared, Step::affinity);
  }
  ::sigprocmask(SIG_SETMASK, prepared.mask, nullptr);
  ::execve(prepared.program, prepared.arguments, prepared.environment);
  give_up(prepared, Step::exec);
}

[[noreturn]] void throw_start_error(const ChildPlan& plan, const StartError& report) {
  switch (report.step) {
    case Step::exec:
      throw CannotStart(concat("cannot run '", plan.program, "': ", std::strerror(report.error)),
                        report.error == ENOENT ? 127 : 126);
    case Step::affinity:
      detail::fail<IoError>("cannot bind rank ", plan.rank, " to its cores: ", std::strerror(report.error));
    case Step::streams:
      break;
  }
  detail::fail<IoError>("cannot set up the streams of rank ", plan.rank, ": ", std::strerror(report.error));
}

bool is_executable_file(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), F_OK) != 0) {
      throw CannotStart(concat("program '", name, "' not found: ", std::strerror(errno)), 127);
    }
    if (!is_executable_file(name)) throw CannotStart(concat("'", name, "' is not an executable file"), 126);
    return name;
  }
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!name.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string folder(end == 0 ? std::string_view(".") : rest.substr(0, end));
    const std::string candidate = concat(folder, "/", name);
    if (is_executable_file(candidate)) return candidate;
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  const bool here = is_executable_file("./" + name);
  throw CannotStart(
      concat("program '", name, "' not found in PATH", here ? concat("; did you mean './", name, "'?") : ""), 127);
}

Child start_child(const ChildPlan& plan) {
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  Pipe status = make_pipe();
  const FileDescriptor null_input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  DDP_CHECK(null_input.open(), IoError, "cannot open /dev/null: ", std::strerror(errno));

  const auto arguments = pointers(plan.arguments);
  const auto environment = pointers(plan.environment);
  std::unique_ptr<cpu_set_t, FreeCpuSet> cpus;
  std::size_t cpus_size = 0;
  if (!plan.cpus.empty()) {
    const auto count = static_cast<std::size_t>(*std::max_element(plan.cpus.begin(), plan.cpus.end())) + 1;
    cpus.reset(CPU_ALLOC(count));
    DDP_CHECK(cpus != nullptr, IoError, "no memory for a set of ", count, " CPUs");
    cpus_size = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(cpus_size, cpus.get());
    for (const int cpu : plan.cpus) CPU_SET_S(static_cast<std::size_t>(cpu), cpus_size, cpus.get());
  }
  const Prepared prepared{plan.program.c_str(), arguments.data(),  environment.data(),
                          cpus.get(),           cpus_size,         &plan.signal_mask,
                          ::getpid(),           null_input.get(),  output.write.get(),
                          errors.write.get(),   status.write.get()};

  const pid_t pid = ::fork();
  DDP_CHECK(pid >= 0, IoError, "cannot start rank ", plan.rank, ": ", std::strerror(errno));
  if (pid == 0) become_rank(prepared);
  ::setpgid(pid, pid);  // here as well: whoever comes first; fails once the child has run exec

  status.write.reset();
  StartError report{};
  ssize_t got = 0;
  do {
    got = ::read(status.read.get(), &report, sizeof report);  // ends when exec closes the pipe
  } while (got < 0 && errno == EINTR);
  if (got == sizeof report) {
    ::waitpid(pid, nullptr, 0);
    throw_start_error(plan, report);
  }
  Child child;
  child.pid = pid;
  child.output = std::move(output.read);
  child.errors = std::move(errors.read);
  for (const int fd : {child.output.get(), child.errors.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  child.pidfd = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  return child;
}

}  // namespace ddp::launch
