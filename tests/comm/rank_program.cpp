// A rank for the tests of init_process_group: what it does is the first argument, the time-out in ms the second.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>

#include "ddp/comm/process_group.h"

namespace {

using namespace ddp;
using std::chrono::milliseconds;

long entries(const char* folder) {
  long count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

float sum_of_ranks(comm::ProcessGroup& group) {
  const Tensor tensor = ddp::tensor<float>({static_cast<float>(group.rank() + 1)});
  group.all_reduce(tensor).wait();
  return tensor.to_vector<float>()[0];
}

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void run(const std::string& what, milliseconds timeout, const std::string& argument) {
  comm::InitOptions options{.backend = "gloo", .timeout = timeout};
  if (what == "cycles") {
    for (int cycle = 1; cycle <= std::stoi(argument); ++cycle) {
      {
        const auto group = comm::init_process_group(options);
        say(concat("sum ", static_cast<int>(sum_of_ranks(*group))));
      }
      say(concat("open ", entries("/proc/self/fd"), " threads ", entries("/proc/self/task")));
    }
    return;
  }
  if (what == "early") {  // rank 1 comes to the second meeting long before rank 0 has left the first
    auto group = comm::init_process_group(options);
    const bool waits = group->rank() == 0;
    sum_of_ranks(*group);
    if (waits) std::this_thread::sleep_for(milliseconds(700));
    group.reset();
    group = comm::init_process_group(options);
    say(concat("sum ", static_cast<int>(sum_of_ranks(*group))));
    return;
  }
  if (what == "file") {
    options.store = std::make_shared<comm::FileStore>(argument);
    const auto group = comm::init_process_group(options);
    say(concat("sum ", static_cast<int>(sum_of_ranks(*group))));
    if (std::getenv("DIE") != nullptr) ::kill(::getpid(), SIGKILL);
    return;
  }
  const auto group = comm::init_process_group(options);
  say("ready 1");
  if (what == "twice") {
    const auto second = comm::init_process_group(options);
    say(concat("sum ", static_cast<int>(sum_of_ranks(*second) + sum_of_ranks(*group))));
  } else if (what == "slow") {
    sum_of_ranks(*group);
    std::this_thread::sleep_for(milliseconds(std::stoi(argument)));
    say(concat("sum ", static_cast<int>(sum_of_ranks(*group))));
  } else if (what == "sizes") {
    const std::int64_t n = group->rank() == 0 ? 5000 : 7000;
    const Tensor tensor = ones({n});
    group->all_reduce(tensor).wait();
    say("result 1");
  } else if (what == "killed") {
    const Tensor tensor = ones({4'000'000});
    for (int step = 0; step < 200; ++step) {
      if (group->rank() == group->size() - 1 && step == 3) ::kill(::getpid(), SIGKILL);
      group->all_reduce(tensor, comm::ReduceOp::max).wait();
    }
    say("result 1");
  } else {
    say(concat("sum ", static_cast<int>(sum_of_ranks(*group))));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "sum", milliseconds(argc > 2 ? std::atoi(argv[2]) : 10'000), argc > 3 ? argv[3] : "");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
