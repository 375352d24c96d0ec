// A program with many ways to end, started as a rank by the launcher's tests.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

int rank_number() { return std::atoi(std::getenv("RANK")); }

// Ends by itself if everything else fails, so that a broken launcher leaves nothing for long.
[[noreturn]] void block() {
  ::alarm(60);
  for (;;) ::pause();
}

void say(const char* text) {
  std::puts(text);
  std::fflush(stdout);
}

void say_pid(const char* what, pid_t pid) {
  std::printf("%s %d\n", what, static_cast<int>(pid));
  std::fflush(stdout);
}

void print_environment() {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                           "DDP_STORE_EXTERNAL", "DDP_RUN_ID", "OMP_NUM_THREADS", "EXTRA"}) {
    const char* value = std::getenv(name);
    std::printf("%s=%s\n", name, value != nullptr ? value : "(unset)");
  }
  cpu_set_t cpus;
  ::sched_getaffinity(0, sizeof cpus, &cpus);
  std::printf("cpus=%d\ngroup_leader=%d\nstdin=%d\n", CPU_COUNT(&cpus), ::getpgrp() == ::getpid() ? 1 : 0,
              std::getchar());
}

void write_half_lines() {
  for (int line = 0; line < 50; ++line) {
    for (FILE* stream : {stdout, stderr}) {
      for (int piece = 0; piece < 4; ++piece) {
        std::fprintf(stream, "%d.%d.%d ", rank_number(), line, piece);
        std::fflush(stream);
      }
      std::fputc('\n', stream);
      std::fflush(stream);
    }
  }
  std::fputs("no newline at the end", stdout);
}

pid_t start_grandchild() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGTERM, SIG_IGN);
    block();
  }
  say_pid("grandchild", pid);
  return pid;
}

extern "C" void stop_politely(int signal) {
  constexpr char kText[] = "stopping politely\n";
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, kText, sizeof kText - 1);
  ::_exit(signal == SIGTERM ? 0 : 5);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int rank = rank_number();
  ::prctl(PR_SET_DUMPABLE, 0);  // no core files of deliberate crashes
  if (mode == "mps") {
    const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
    const std::string path = std::string(folder != nullptr ? folder : "/nowhere") + "/nvidia-cuda-mps-control.pid";
    int pid = 0;
    FILE* file = std::fopen(path.c_str(), "r");
    if (file != nullptr && std::fscanf(file, "%d", &pid) == 1) say_pid("mps_daemon", pid);
    if (file != nullptr) std::fclose(file);
    return 0;
  }
  if (mode == "env") {
    print_environment();
  } else if (mode == "arguments") {
    for (int i = 2; i < argc; ++i) say(argv[i]);
  } else if (mode == "half_lines") {
    write_half_lines();
  } else if (mode == "exit") {
    say_pid("pid", ::getpid());
    if (rank == std::atoi(argv[2])) {
      std::fputs("about to exit\n", stderr);
      return std::atoi(argv[3]);
    }
    block();
  } else if (mode == "throw") {
    say_pid("pid", ::getpid());
    if (rank == 1) throw std::runtime_error("bad sample 17");
    block();
  } else if (mode == "kill") {
    if (rank == 1) ::raise(SIGKILL);
    block();
  } else if (mode == "blame") {
    // The rank at fault is slow to go, and the others notice first.
    if (rank == 1) {
      ::usleep(200 * 1000);
      std::fputs("bad sample 17\n", stderr);
      return 4;
    }
    std::fprintf(stderr, "rank %d: all_reduce failed: rank %d closed the connection\n", rank, rank == 0 ? 1 : 0);
    return 1;
  } else if (mode == "stubborn") {
    ::signal(SIGTERM, SIG_IGN);
    ::signal(SIGINT, SIG_IGN);
    say_pid("ready", ::getpid());
    if (rank == 0 && argc > 2) return std::atoi(argv[2]);
    block();
  } else if (mode == "polite") {
    ::signal(SIGTERM, stop_politely);
    ::signal(SIGINT, stop_politely);
    say_pid("ready", ::getpid());
    block();
  } else if (mode == "grandchild") {
    start_grandchild();
    say_pid("ready", ::getpid());
    if (argc > 2) return std::atoi(argv[2]);
    block();
  } else {
    std::fprintf(stderr, "unknown mode '%s'\n", mode.c_str());
    return 64;
  }
  return 0;
}
