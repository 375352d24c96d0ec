// A rank for the tests of NCCL groups, on cuda:0 whatever its number: what it does is the first argument, the time-out
// in ms the second.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

#include "ddp/comm/process_group.h"

namespace {

using namespace ddp;
using std::chrono::milliseconds;

const Device kGpu = Device::cuda(0);

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

Tensor filled(std::int64_t n, double value) { return full({n}, value, {.device = kGpu}); }

int sum_of_ranks(comm::ProcessGroup& group) {
  const Tensor tensor = filled(1, group.rank() + 1);
  group.all_reduce(tensor).wait();
  return static_cast<int>(tensor.item<float>());
}

// Gradients are written on a side stream, late; the collective must come after them and the reader after it.
void ordered(comm::ProcessGroup& group) {
  const Stream side(kGpu);
  const StreamGuard guard(side);
  Tensor large = filled(64 << 20, 1);
  const Tensor other = filled(64 << 20, 2);
  int wrong = 0;
  constexpr int kSteps = 100;
  for (int step = 0; step < kSteps; ++step) {
    Tensor gradient = filled(10'000, -1000);
    // Device time between the stale numbers and the right ones.
    for (int i = 0; i < 8; ++i) large.copy_(other);
    gradient.fill_(group.rank() + step);
    group.all_reduce(gradient).wait();
    const double expected = group.size() * step + group.size() * (group.size() - 1) / 2.0;
    for (const double value : gradient.to_vector<double>()) wrong += value == expected ? 0 : 1;
  }
  say(concat("steps ", kSteps, " wrong ", wrong));
}

// Tensors and works are dropped at once and their memory asked for again: the collectives still read and write their
// own. What each leaves is seen in the sums of a tensor that stays.
void dropped(comm::ProcessGroup& group) {
  const Tensor kept = filled(1 << 20, 1);
  int wrong = 0;
  for (int step = 0; step < 50; ++step) {
    const Tensor row = filled(1 << 20, group.rank() + step);
    const Tensor rows = empty({group.size(), 1 << 20}, {.device = kGpu});
    const comm::Work gathered = group.all_gather(rows, row);
    for (int i = 0; i < 4; ++i) group.all_reduce(filled(1 << 20, step + i));
    const Tensor overwritten = filled(1 << 20, -5);
    gathered.wait();
    const auto values = rows.to_vector<float>();
    for (int r = 0; r < group.size(); ++r) {
      wrong += values[static_cast<std::size_t>(r) << 20] == static_cast<float>(r + step) ? 0 : 1;
      wrong += values[(static_cast<std::size_t>(r + 1) << 20) - 1] == static_cast<float>(r + step) ? 0 : 1;
    }
    wrong += overwritten.to_vector<float>()[77] == -5 ? 0 : 1;
  }
  say(concat("wrong ", wrong));
}

void run(const std::string& what, milliseconds timeout, const std::string& argument) {
  comm::InitOptions options{.backend = "nccl", .device = kGpu, .timeout = timeout};
  if (what == "absent") {
    // The last rank has come to the launcher and not to the group.
    if (std::getenv("RANK") == argument) return;
    comm::init_process_group(options);
    say("result 1");
    return;
  }
  if (what == "cycles") {
    for (int cycle = 0; cycle < 3; ++cycle) {
      const auto group = comm::init_process_group(options);
      say(concat("sum ", sum_of_ranks(*group)));
    }
    return;
  }
  options.check_collectives = what == "checked";
  const auto group = comm::init_process_group(options);
  const int rank = group->rank();
  const int last = group->size() - 1;
  say(concat("ready ", group->backend()));
  sum_of_ranks(*group);
  if (what == "ordered") {
    ordered(*group);
  } else if (what == "dropped") {
    dropped(*group);
  } else if (what == "killed") {
    const Tensor tensor = filled(4'000'000, 1);
    for (int step = 0; step < 200; ++step) {
      if (rank == last && step == 3) ::kill(::getpid(), SIGKILL);
      group->all_reduce(tensor, comm::ReduceOp::max, {.label = "bucket 7"}).wait_blocking();
    }
    say("result 1");
  } else if (what == "late") {
    if (rank == last) {
      std::this_thread::sleep_for(timeout * 2 + milliseconds(2000));
      group->all_reduce(filled(5, 1)).wait_blocking();
    } else {
      group->all_reduce(filled(5, 1), comm::ReduceOp::sum, {.label = "bucket 7"}).wait_blocking();
    }
    say("result 1");
  } else if (what == "own_limit") {
    // The other rank comes too late. (Another collective in its place could let NCCL's barrier pass.)
    if (rank == 0) group->barrier({.label = "save", .timeout = milliseconds(700)});
    std::this_thread::sleep_for(milliseconds(3000));
    group->all_reduce(filled(5, 1), comm::ReduceOp::sum, {.lane = 0}).wait_blocking();
    say("result 1");
  } else if (what == "kinds") {
    const Tensor tensor = filled(16'000'000, 1);
    if (rank == 0) {
      group->broadcast(tensor, 0).wait_blocking();
    } else {
      group->all_reduce(tensor).wait_blocking();
    }
    group->barrier();
    say("result 1");
  } else if (what == "sizes") {
    group->all_reduce(filled(rank == last ? 12'000'000 : 1'000'000, 1)).wait_blocking();
    group->barrier();
    say("result 1");
  } else if (what == "checked") {
    group->all_reduce(filled(8, 1), comm::ReduceOp::sum, {.label = "same"}).wait_blocking();
    say("agreed 1");
    group->all_reduce(filled(8, 1), comm::ReduceOp::sum, {.label = rank == 0 ? "left" : "right"}).wait_blocking();
    say("result 1");
  } else if (what == "abort") {
    if (rank == 0) {
      std::this_thread::sleep_for(milliseconds(200));
      group->abort("the disk is full");
      group->barrier();
    }
    group->all_reduce(filled(3'000'000, 1)).wait_blocking();
    say("result 1");
  } else if (what == "unwind") {
    if (rank == 0) {
      // Owned by this scope alone, with a collective under way that nobody joins.
      auto mine = comm::init_process_group(options);
      sum_of_ranks(*mine);
      mine->all_reduce(filled(3'000'000, 1));
      throw std::runtime_error("no such file");
    }
    const auto mine = comm::init_process_group(options);
    sum_of_ranks(*mine);
    std::this_thread::sleep_for(milliseconds(500));
    mine->barrier();
    mine->barrier();
    say("result 1");
  } else if (what == "message") {
    // Nobody sends, and then something else than expected.
    if (rank == 0) group->recv(filled(4, 0), 1, 3, {.label = "halo"}).wait_blocking();
    if (rank == 1) group->send(filled(5, 0), 0, 3, {.label = "halo"}).wait_blocking();
    say("result 1");
  } else {
    say(concat("sum ", sum_of_ranks(*group)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "sum", milliseconds(argc > 2 ? std::atoi(argv[2]) : 30'000), argc > 3 ? argv[3] : "");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
