#include "launch/gpu_sharing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "ddp/core/error.h"
#include "launch/child.h"
#include "launch/file_descriptor.h"
#include "launch/spawn.h"

extern char** environ;

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kControl = "nvidia-cuda-mps-control";
constexpr const char* kPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kLogVariable = "CUDA_MPS_LOG_DIRECTORY";
constexpr std::chrono::seconds kStartTime{10};
constexpr std::chrono::seconds kStopTime{5};

/// The folder of the driver's library, empty when there is none.
fs::path driver_folder() {
  void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return {};
  fs::path folder;
  const link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr) {
    std::error_code ignored;
    folder = fs::weakly_canonical(map->l_name, ignored).parent_path();
  }
  ::dlclose(library);
  return folder;
}

/// In PATH, else beside the driver's libraries; empty when it is nowhere.
std::string find_control() {
  try {
    return find_program(kControl);
  } catch (const CannotStart&) {  // not in PATH
  }
  const fs::path driver = driver_folder();
  for (const fs::path& folder : {driver, driver / "../bin", driver / "../../bin", fs::path("/usr/local/nvidia/bin")}) {
    const fs::path candidate = folder / kControl;
    if (!folder.empty() && ::access(candidate.c_str(), X_OK) == 0) return candidate.lexically_normal();
  }
  return {};
}

std::string variable(const char* name, std::string otherwise) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): the launcher never sets its own
  return value != nullptr && *value != '\0' ? value : std::move(otherwise);
}

/// The process that a daemon has noted in its folder, if it lives.
std::optional<pid_t> daemon_of(const fs::path& folder) {
  std::ifstream file(folder / "nvidia-cuda-mps-control.pid");
  pid_t pid = 0;
  if (!(file >> pid) || pid <= 1) return std::nullopt;
  if (::kill(pid, 0) != 0 && errno != EPERM) return std::nullopt;
  return pid;
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& more) {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!more.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
  }
  for (const auto& [name, value] : more) result.push_back(concat(name, "=", value));
  return result;
}

/// Whether `done` comes true within the time.
template <class Condition>
bool wait_until(Clock::time_point deadline, Condition done) {
  while (!done()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

/// Runs the control program with `input`; its output goes to `log`. Returns its exit status, nothing when it did not
/// start or did not end in time.
std::optional<int> run_control(const std::string& program, std::vector<std::string> arguments, std::string_view input,
                               const std::string& log, const std::map<std::string, std::string>& variables,
                               std::chrono::seconds limit) {
  const std::vector<std::string> environment = environment_with(variables);
  std::vector<char*> argument_pointers{const_cast<char*>(program.c_str())};
  for (std::string& argument : arguments) argument_pointers.push_back(argument.data());
  argument_pointers.push_back(nullptr);
  std::vector<char*> environment_pointers;
  for (const std::string& entry : environment) environment_pointers.push_back(const_cast<char*>(entry.c_str()));
  environment_pointers.push_back(nullptr);

  Pipe pipe = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, pipe.read.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);  // what a terminal sends to the launcher is not for the daemon
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argument_pointers.data(),
                                  environment_pointers.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) return std::nullopt;
  pipe.read.reset();
  // A few bytes fit into any pipe; SIGPIPE is blocked while ranks run.
  [[maybe_unused]] const ssize_t written = ::write(pipe.write.get(), input.data(), input.size());
  pipe.write.reset();
  int status = 0;
  const bool ended = wait_until(Clock::now() + limit, [&] { return ::waitpid(pid, &status, WNOHANG) != 0; });
  if (!ended) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    return std::nullopt;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::unique_ptr<MpsDaemon> MpsDaemon::start(std::string& why_not) {
  std::unique_ptr<MpsDaemon> daemon(new MpsDaemon());
  if (daemon_of(variable(kPipeVariable, "/tmp/nvidia-mps"))) return daemon;
  daemon->program_ = find_control();
  if (daemon->program_.empty()) {
    why_not = concat(kControl, " is neither in PATH nor beside the driver's libraries");
    return nullptr;
  }
  std::string folder = (fs::temp_directory_path() / "ddp-mps-XXXXXX").string();
  DDP_CHECK(::mkdtemp(folder.data()) != nullptr, IoError, "cannot make the folder '", folder,
            "': ", std::strerror(errno));
  daemon->folder_ = folder;
  for (const auto& [name, path] : daemon->environment()) fs::create_directory(path);
  daemon->guardian_ = std::make_unique<Guardian>();
  const std::string log = folder + "/start.txt";
  const auto status = run_control(daemon->program_, {"-d"}, "", log, daemon->environment(), kStartTime);
  const bool there = status == 0 && wait_until(Clock::now() + kStartTime, [&] {
                       const auto pid = daemon_of(folder + "/pipe");
                       daemon->pid_ = pid.value_or(0);
                       return pid.has_value();
                     });
  DDP_CHECK(there, IoError, "'", daemon->program_, " -d' ",
            status ? concat("ended with code ", *status) : std::string("did not come up"), ": ", first_line(log));
  daemon->guardian_->watch(daemon->pid_);
  return daemon;
}

MpsDaemon::~MpsDaemon() {
  if (!started_here()) return;
  try {
    if (pid_ > 0) {
      run_control(program_, {}, "quit -t 1\n", folder_ + "/stop.txt", environment(), kStopTime);
      const auto gone = [this] { return ::kill(pid_, 0) != 0; };
      if (!wait_until(Clock::now() + kStopTime, gone)) {
        // It leads its own group, in which its server is.
        if (::kill(-pid_, SIGKILL) != 0) ::kill(pid_, SIGKILL);
      }
      guardian_->forget(pid_);
    }
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  } catch (...) {  // NOLINT(bugprone-empty-catch): no process or memory to be had; the guardian still watches
  }
}

std::map<std::string, std::string> MpsDaemon::environment() const {
  if (!started_here()) return {};
  return {{kPipeVariable, folder_ + "/pipe"}, {kLogVariable, folder_ + "/log"}};
}

void GpuSharing::add_to(std::map<std::string, std::string>& environment, int rank) const {
  if (mps) {
    for (const auto& [name, value] : mps->environment()) environment[name] = value;
  }
  environment["DDP_SHARE_GPU"] = std::to_string(1);
  environment.emplace("NCCL_HOSTID", concat(environment["DDP_RUN_ID"], "-", rank));
  environment.emplace("NCCL_SOCKET_IFNAME", "lo");
  environment.emplace("NCCL_IB_DISABLE", std::to_string(1));
  // On loopback one thread and one socket move more than NCCL's own choice does.
  environment.emplace("NCCL_SOCKET_NTHREADS", std::to_string(1));
  environment.emplace("NCCL_NSOCKS_PERTHREAD", std::to_string(1));
}

std::optional<GpuSharing> share_gpus(int ranks, int gpus) {
  DDP_CHECK(gpus > 0, InvalidArgument, "--share-gpu needs a GPU that CUDA can use; there is none");
  if (ranks <= gpus) return std::nullopt;
  GpuSharing sharing;
  std::string why_not;
  sharing.mps = MpsDaemon::start(why_not);
  sharing.text = concat(ranks, " ranks share ", gpus, gpus == 1 ? " GPU" : " GPUs", ": NCCL over loopback sockets, ");
  if (sharing.mps) {
    sharing.text += sharing.mps->started_here() ? "CUDA MPS started for this run" : "with the CUDA MPS that runs";
  } else {
    sharing.text += concat("without CUDA MPS (", why_not, "): the ranks take turns, so times mean little");
  }
  return sharing;
}

}  // namespace ddp::launch
