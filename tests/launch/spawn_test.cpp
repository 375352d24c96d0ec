#include "launch/spawn.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <sstream>

#include "process.h"
#include "support/processes.h"

namespace ddp::launch {
namespace {

using test::numbers_after;
using test::process_options;
using test::run_ranks;

const std::string kProgram = RANK_PROGRAM;

std::map<std::string, std::string> variables(const std::string& text) {
  std::map<std::string, std::string> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    result[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  return result;
}

SpawnOptions ending_options() {
  SpawnOptions options = process_options();
  options.end_others = true;
  options.settle = std::chrono::milliseconds(500);
  return options;
}

void expect_all_gone(const RunResult& result) {
  for (const RankResult& rank : result.ranks) EXPECT_FALSE(test::is_alive(rank.pid)) << "rank " << rank.rank;
}

TEST(Spawn, GivesEveryRankItsVariables) {
  ::unsetenv("OMP_NUM_THREADS");
  SpawnOptions options = process_options();
  options.adjust_environment = [](int rank, Environment& environment) {
    if (rank == 2) environment["EXTRA"] = std::string("of rank 2");
  };
  const auto run = run_ranks(kProgram, 3, {"env"}, options);
  EXPECT_EQ(run.result.exit_code, 0);
  EXPECT_EQ(run.result.summary, "");
  EXPECT_FALSE(run.result.first_failure.has_value());
  std::set<std::string> ports;
  std::set<std::string> run_ids;
  for (int rank = 0; rank < 3; ++rank) {
    auto values = variables(run.ranks[static_cast<std::size_t>(rank)].output);
    EXPECT_EQ(values["RANK"], std::to_string(rank));
    EXPECT_EQ(values["LOCAL_RANK"], std::to_string(rank));
    EXPECT_EQ(values["WORLD_SIZE"], "3");
    EXPECT_EQ(values["LOCAL_WORLD_SIZE"], "3");
    EXPECT_EQ(values["MASTER_ADDR"], "127.0.0.1");
    EXPECT_EQ(values["DDP_STORE_EXTERNAL"], "1");
    EXPECT_EQ(values["DDP_RUN_ID"].size(), 16U);
    EXPECT_EQ(values["EXTRA"], rank == 2 ? "of rank 2" : "(unset)");
    EXPECT_EQ(values["group_leader"], "1");
    EXPECT_EQ(values["stdin"], "-1");
    EXPECT_GE(std::stoi(values["OMP_NUM_THREADS"]), 1);
    ports.insert(values["MASTER_PORT"]);
    run_ids.insert(values["DDP_RUN_ID"]);
  }
  EXPECT_EQ(ports.size(), 1U);
  EXPECT_GE(std::stoi(*ports.begin()), 1);
  EXPECT_EQ(run_ids.size(), 1U);
  expect_all_gone(run.result);
}

TEST(Spawn, BindsARankToItsShareAndSaysSo) {
  ::unsetenv("OMP_NUM_THREADS");
  cpu_set_t own;
  ASSERT_EQ(::sched_getaffinity(0, sizeof own, &own), 0);
  SpawnOptions options = process_options();
  options.bind = true;
  const auto run = run_ranks(kProgram, 2, {"env"}, options);
  ASSERT_EQ(run.notes.size(), 1U);
  EXPECT_EQ(run.notes[0].rfind("2 ranks on ", 0), 0U) << run.notes[0];
  const int first = std::stoi(variables(run.ranks[0].output)["cpus"]);
  const int second = std::stoi(variables(run.ranks[1].output)["cpus"]);
  if (run.notes[0].find("not bound") == std::string::npos) {
    EXPECT_EQ(first + second, CPU_COUNT(&own));
  } else {
    EXPECT_EQ(first, 1);  // a machine of one core
  }
}

TEST(Spawn, KeepsTheUsersThreads) {
  ::setenv("OMP_NUM_THREADS", "7", 1);
  const auto run = run_ranks(kProgram, 2, {"env"});
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(variables(run.ranks[1].output)["OMP_NUM_THREADS"], "7");
  EXPECT_NE(run.notes[0].find("OMP_NUM_THREADS=7 kept"), std::string::npos) << run.notes[0];
}

TEST(Spawn, PassesArgumentsUnchanged) {
  const auto run = run_ranks(kProgram, 1, {"arguments", "--epochs", "3", "two words", "", "--"});
  EXPECT_EQ(run.ranks[0].output, "--epochs\n3\ntwo words\n\n--\n");
}

TEST(Spawn, ExitCodeIsTheFirstFailures) {
  const auto run = run_ranks(kProgram, 3, {"exit", "1", "3"}, ending_options());
  EXPECT_EQ(run.result.exit_code, 3);
  EXPECT_EQ(run.result.first_failure, 1);
  EXPECT_EQ(run.ranks[1].exit_code, 3);
  for (const std::size_t other : {0U, 2U}) {
    EXPECT_EQ(run.ranks[other].signal, SIGTERM);
    EXPECT_EQ(run.result.ranks[other].ended_by_launcher, SIGTERM);
    EXPECT_FALSE(run.result.ranks[other].failed());
  }
  const std::string& summary = run.result.summary;
  EXPECT_EQ(summary.rfind("rank 1 failed first: exit code 3 after ", 0), 0U) << summary;
  EXPECT_NE(summary.find("\n  error: about to exit\n  secondary:\n"
                         "    rank 0: ended by the launcher with SIGTERM\n"
                         "    rank 2: ended by the launcher with SIGTERM\n"),
            std::string::npos)
      << summary;
  expect_all_gone(run.result);
}

TEST(Spawn, TellsTheTextOfAnUncaughtException) {
  const auto run = run_ranks(kProgram, 3, {"throw"}, ending_options());
  EXPECT_EQ(run.result.exit_code, 128 + SIGABRT);
  EXPECT_EQ(run.result.first_failure, 1);
  EXPECT_EQ(run.result.summary.rfind("rank 1 failed first: killed by SIGABRT after ", 0), 0U) << run.result.summary;
  EXPECT_NE(run.result.summary.find("\n  error: bad sample 17\n"), std::string::npos) << run.result.summary;
  expect_all_gone(run.result);
}

TEST(Spawn, TellsTheSignalOfAKilledRank) {
  const auto run = run_ranks(kProgram, 3, {"kill"}, ending_options());
  EXPECT_EQ(run.result.exit_code, 128 + SIGKILL);
  EXPECT_EQ(run.result.first_failure, 1);
  EXPECT_EQ(run.result.ranks[1].signal, SIGKILL);
  EXPECT_EQ(run.result.summary.rfind("rank 1 failed first: killed by SIGKILL after ", 0), 0U) << run.result.summary;
  EXPECT_NE(run.result.summary.find("\n  it wrote nothing to standard error\n"), std::string::npos)
      << run.result.summary;
}

TEST(Spawn, FindsTheRankAtFaultThoughOthersEndBeforeIt) {
  const auto run = run_ranks(kProgram, 3, {"blame"}, ending_options());
  EXPECT_EQ(run.result.first_failure, 1);
  EXPECT_EQ(run.result.exit_code, 4);
  EXPECT_NE(run.result.summary.find("  error: bad sample 17\n  secondary:\n    rank 0: exit code 1: rank 0: all_reduce "
                                    "failed: rank 1 closed the connection\n    rank 2: exit code 1: "),
            std::string::npos)
      << run.result.summary;
}

TEST(Spawn, KillsAfterTheGrace) {
  SpawnOptions options = ending_options();
  options.grace = std::chrono::milliseconds(300);
  const auto run = run_ranks(kProgram, 2, {"stubborn", "6"}, options);
  EXPECT_EQ(run.result.exit_code, 6);
  EXPECT_EQ(run.ranks[1].signal, SIGKILL);
  EXPECT_EQ(run.result.ranks[1].ended_by_launcher, SIGKILL);
  EXPECT_FALSE(run.result.timed_out);
  EXPECT_NE(run.result.summary.find("rank 1: ended by the launcher with SIGKILL\n"), std::string::npos);
  expect_all_gone(run.result);
}

TEST(Spawn, LeavesOthersAloneWhenAskedTo) {
  SpawnOptions options = process_options();
  options.time_limit = std::chrono::seconds(2);
  const auto run = run_ranks(kProgram, 2, {"exit", "0", "3"}, options);
  EXPECT_TRUE(run.result.timed_out);
  EXPECT_EQ(run.result.exit_code, 3);
  EXPECT_EQ(run.ranks[1].signal, SIGKILL);
  EXPECT_EQ(run.result.ranks[1].ended_by_launcher, SIGKILL);
}

TEST(Spawn, TimeLimitAloneIsACodeOfItsOwn) {
  SpawnOptions options = process_options();
  options.time_limit = std::chrono::milliseconds(300);
  const auto run = run_ranks(kProgram, 2, {"stubborn"}, options);
  EXPECT_TRUE(run.result.timed_out);
  EXPECT_EQ(run.result.exit_code, 124);
  EXPECT_EQ(run.result.summary.rfind("the time limit was reached", 0), 0U);
  expect_all_gone(run.result);
}

TEST(Spawn, GrandchildrenEndWithTheirRank) {
  for (const char* code : {"0", "9"}) {
    const auto run = run_ranks(kProgram, 2, {"grandchild", code}, ending_options());
    EXPECT_EQ(run.result.exit_code, std::atoi(code));
    for (const auto& rank : run.ranks) {
      const auto pids = numbers_after(rank.output, "grandchild");
      ASSERT_EQ(pids.size(), 1U);
      EXPECT_TRUE(test::is_gone_soon(pids[0]));
    }
  }
}

TEST(Spawn, JoinsHalfLines) {
  const auto run = run_ranks(kProgram, 3, {"half_lines"});
  for (int rank = 0; rank < 3; ++rank) {
    std::string expected;
    for (int line = 0; line < 50; ++line) {
      for (int piece = 0; piece < 4; ++piece) expected += concat(rank, ".", line, ".", piece, " ");
      expected += '\n';
    }
    const auto& output = run.ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(output.errors, expected);
    EXPECT_EQ(output.output, expected + "no newline at the end\n");
  }
}

TEST(Spawn, StoreOutlivesRank0) {
  const auto run = run_ranks(STORE_PROGRAM, 3);
  EXPECT_EQ(run.result.exit_code, 0) << run.result.summary;
  EXPECT_EQ(run.ranks[1].output, "still here\n");
  EXPECT_EQ(run.ranks[2].output, "still here\n");
}

TEST(Spawn, RefusesWhatCannotBe) {
  const auto text_of = [](SpawnOptions options) -> std::string {
    try {
      spawn(options);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };
  SpawnOptions options = process_options();
  options.command = {kProgram, "env"};
  options.nproc = 0;
  EXPECT_EQ(text_of(options), "number of ranks is 0; allowed: 1 to 1024");
  options.nproc = 1025;
  EXPECT_EQ(text_of(options), "number of ranks is 1025; allowed: 1 to 1024");
  options.nproc = 1;
  options.master_port = 66660;
  EXPECT_EQ(text_of(options), "MASTER_PORT is 66660; allowed: 1 to 65535, or 0 for a free one");
  options.master_port = 0;
  options.master_addr = " a b";
  EXPECT_EQ(text_of(options), "MASTER_ADDR is ' a b'; allowed: a host name or an IP address");
  options.master_addr = " ";
  EXPECT_EQ(text_of(options), "MASTER_ADDR is ' '; allowed: a host name or an IP address");
  options.master_addr = "127.0.0.1";
  options.command.clear();
  EXPECT_EQ(text_of(options), "no program given");
}

TEST(Spawn, TrimsTheAddress) {
  SpawnOptions options = process_options();
  options.master_addr = " 127.0.0.1 ";
  const auto run = run_ranks(kProgram, 1, {"env"}, options);
  EXPECT_EQ(variables(run.ranks[0].output)["MASTER_ADDR"], "127.0.0.1");
}

TEST(Spawn, NamesAProgramThatCannotRun) {
  const auto code_and_text = [](const std::string& program) -> std::pair<int, std::string> {
    try {
      run_ranks(program, 2);
    } catch (const CannotStart& error) {
      return {error.exit_code(), error.what()};
    }
    return {0, ""};
  };
  EXPECT_EQ(code_and_text("no-such-program-at-all"),
            std::pair(127, std::string("program 'no-such-program-at-all' not found in PATH")));
  EXPECT_EQ(code_and_text("/nowhere/program"),
            std::pair(127, std::string("program '/nowhere/program' not found: No such file or directory")));
  EXPECT_EQ(code_and_text("/etc/passwd"), std::pair(126, std::string("'/etc/passwd' is not an executable file")));
}

}  // namespace
}  // namespace ddp::launch
