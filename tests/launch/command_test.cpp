// The `ddp run` command from outside: exit codes, texts, signals, and what it leaves behind.
#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "ddp/core/error.h"
#include "process.h"

namespace ddp::test {
namespace {

struct Ended {
  int code;
  std::string output;
  std::string errors;
};

std::vector<std::string> run_command(const std::vector<std::string>& words) {
  std::vector<std::string> command = {DDP_COMMAND, "run"};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

Ended run(const std::vector<std::string>& words) {
  Process process(run_command(words));
  const int code = process.wait();
  return {code, process.output(), process.errors()};
}

TEST(Command, VersionAndHelp) {
  Process version({DDP_COMMAND, "--version"});
  EXPECT_EQ(version.wait(), 0);
  EXPECT_TRUE(std::regex_match(version.output(), std::regex("ddp \\d+\\.\\d+\\.\\d+\n"))) << version.output();
  Process help({DDP_COMMAND, "--help"});
  EXPECT_EQ(help.wait(), 0);
  EXPECT_NE(help.output().find("ddp VERB"), std::string::npos);
  const auto verb_help = run({"--help"});
  EXPECT_EQ(verb_help.code, 0);
  EXPECT_NE(verb_help.output.find("Usage: ddp run -n N [options] [--] PROGRAM [ARGS...]"), std::string::npos);
  EXPECT_NE(verb_help.output.find("--timeout-grace"), std::string::npos);
}

TEST(Command, UsageErrorsAreOneLineAndCode2) {
  const std::string more = " (ddp run --help tells more)\n";
  const auto expect = [&](const std::vector<std::string>& words, const std::string& text) {
    const auto ended = run(words);
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(ended.output, "");
    EXPECT_EQ(ended.errors, concat("ddp run: ", text, more));
  };
  const std::string count = "; allowed: a whole number from 1 to 1024, or gpu";
  for (const std::string bad : {"0", "-1", "1025", "x", "2x", "2.5", ""}) {
    expect({"--nproc-per-node", bad, "true"}, concat("-n,--nproc-per-node is '", bad, "'", count));
  }
  for (const std::string bad : {"66660", "0", "abc", ""}) {
    expect({"-n", "1", "--master-port", bad, "true"},
           concat("--master-port is '", bad, "'; allowed: a whole number from 1 to 65535"));
  }
  expect({"-n", "1", "--timeout-grace", "nan", "true"}, "--timeout-grace is 'nan'; allowed: a number from 0 to 86400");
  expect({"true"}, concat("-n,--nproc-per-node is missing", count));
  expect({"-n", "1"}, "no program given");
  expect({"-n", "1", "--"}, "no program given");
  expect({"-n", "1", "--wrong", "true"}, "unknown option '--wrong'");

  Process no_verb({DDP_COMMAND});
  EXPECT_EQ(no_verb.wait(), 2);
  Process wrong_verb({DDP_COMMAND, "walk"});
  EXPECT_EQ(wrong_verb.wait(), 2);
  EXPECT_EQ(wrong_verb.errors(), "ddp: unknown verb 'walk'; allowed: run (ddp --help tells more)\n");
}

TEST(Command, BadAddressIsAUsageErrorThatQuotesIt) {
  const auto ended = run({"-n", "1", "--master-addr", "a b", "true"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.errors, "ddp: MASTER_ADDR is 'a b'; allowed: a host name or an IP address\n");
}

TEST(Command, MissingProgramIs127) {
  const auto ended = run({"-n", "2", "no-such-program-at-all"});
  EXPECT_EQ(ended.code, 127);
  EXPECT_EQ(ended.errors, "ddp: program 'no-such-program-at-all' not found in PATH\n");
}

TEST(Command, BusyPortIsNamed) {
  Process holder(run_command({"-n", "1", "--", RANK_PROGRAM, "env"}));
  ASSERT_EQ(holder.wait(), 0);
  std::smatch port;
  const std::string output = holder.output();
  ASSERT_TRUE(std::regex_search(output, port, std::regex("MASTER_PORT=(\\d+)")));
  // Free again at once, so it can be asked for; and then it is busy.
  Process first(run_command({"-n", "1", "--master-port", port[1], "--", RANK_PROGRAM, "polite"}));
  const auto pids = first.wait_for("ready", 1);
  const auto second = run({"-n", "1", "--master-port", port[1], "--", RANK_PROGRAM, "env"});
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.errors.find("in use"), std::string::npos) << second.errors;
  EXPECT_NE(second.errors.find(concat(":", port[1].str())), std::string::npos) << second.errors;
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait(), 143);
  EXPECT_FALSE(is_alive(pids[0]));
}

TEST(Command, PassesEverythingBehindTheProgramOn) {
  const auto plain = run({"-n", "1", RANK_PROGRAM, "arguments", "-n", "5", "--no-bind", "--", "x"});
  EXPECT_EQ(plain.output, "[rank 0] -n\n[rank 0] 5\n[rank 0] --no-bind\n[rank 0] --\n[rank 0] x\n");
  const auto separated = run({"-n", "1", "--", RANK_PROGRAM, "arguments", "--help", "--"});
  EXPECT_EQ(separated.output, "[rank 0] --help\n[rank 0] --\n");
}

TEST(Command, PrefixesWholeLinesOfBothStreams) {
  const auto ended = run({"-n", "3", "--", RANK_PROGRAM, "half_lines"});
  EXPECT_EQ(ended.code, 0);
  const auto check = [](const std::string& text, const std::string& own_line, bool unended) {
    std::vector<int> next(3, 0);
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (!own_line.empty() && line.rfind(own_line, 0) == 0) continue;
      ASSERT_EQ(line.rfind("[rank ", 0), 0U) << line;
      const int rank = line[6] - '0';
      ASSERT_TRUE(rank >= 0 && rank < 3) << line;
      int& number = next[static_cast<std::size_t>(rank)];
      std::string expected = concat("[rank ", rank, "] ");
      if (number == 50) {
        expected += "no newline at the end";
      } else {
        for (int piece = 0; piece < 4; ++piece) {
          expected += concat(rank, ".", number, ".", piece, " ");
        }
      }
      EXPECT_EQ(line, expected);
      ++number;
    }
    EXPECT_EQ(next, std::vector<int>(3, unended ? 51 : 50));
  };
  check(ended.output, "", true);
  check(ended.errors, "ddp run: ", false);
}

TEST(Command, SummaryEndsStandardErrorAndCodeIsTheRanks) {
  const auto ended = run({"-n", "3", "--", RANK_PROGRAM, "throw"});
  EXPECT_EQ(ended.code, 128 + SIGABRT);
  EXPECT_NE(ended.errors.find("ddp run: rank 1 failed first: killed by SIGABRT after "), std::string::npos)
      << ended.errors;
  const std::string end =
      "  secondary:\n    rank 0: ended by the launcher with SIGTERM\n    rank 2: ended by the launcher with SIGTERM\n";
  ASSERT_GE(ended.errors.size(), end.size());
  EXPECT_EQ(ended.errors.substr(ended.errors.size() - end.size()), end);
  for (const pid_t pid : numbers_after(ended.output, "pid")) EXPECT_FALSE(is_alive(pid));
}

TEST(Command, ForwardsSigtermAndExitsWith143) {
  Process process(run_command({"-n", "3", "--", RANK_PROGRAM, "polite"}));
  const auto pids = process.wait_for("ready", 3);
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 143);
  const std::string output = process.output();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_NE(output.find(concat("[rank ", rank, "] stopping politely\n")), std::string::npos) << output;
  }
  EXPECT_NE(process.errors().find("ddp run: stopped by SIGTERM\n  ranks:\n    rank 0: ended by the launcher with "
                                  "SIGTERM, exit code 0\n"),
            std::string::npos)
      << process.errors();
  for (const pid_t pid : pids) EXPECT_FALSE(is_alive(pid));
}

TEST(Command, ForwardsSigintAndExitsWith130) {
  Process process(run_command({"-n", "2", "--", RANK_PROGRAM, "polite"}));
  process.wait_for("ready", 2);
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 130);
  EXPECT_NE(process.output().find("[rank 1] stopping politely\n"), std::string::npos);
}

TEST(Command, SecondSigintEndsAtOnce) {
  // With a grace of an hour only the second signal can end this.
  Process process(run_command({"-n", "2", "--timeout-grace", "3600", "--", RANK_PROGRAM, "stubborn"}));
  const auto pids = process.wait_for("ready", 2);
  process.signal(SIGINT);
  ASSERT_TRUE(eventually([&] { return process.errors().find("got SIGINT") != std::string::npos; }));
  for (const pid_t pid : pids) EXPECT_TRUE(is_alive(pid));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 130);
  for (const pid_t pid : pids) EXPECT_FALSE(is_alive(pid));
}

TEST(Command, StubbornRanksAreKilledAfterTheGrace) {
  Process process(run_command({"-n", "2", "--timeout-grace", "0.2", "--", RANK_PROGRAM, "stubborn"}));
  const auto pids = process.wait_for("ready", 2);
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 143);
  EXPECT_NE(process.errors().find("rank 1: ended by the launcher with SIGKILL\n"), std::string::npos)
      << process.errors();
  for (const pid_t pid : pids) EXPECT_FALSE(is_alive(pid));
}

TEST(Command, SigtermToOneRankEndsTheRun) {
  Process process(run_command({"-n", "3", "--", RANK_PROGRAM, "exit", "99", "0"}));
  const auto pids = process.wait_for("pid", 3);
  ::kill(pids[0], SIGTERM);
  EXPECT_EQ(process.wait(), 143);
  EXPECT_NE(process.errors().find("failed first: killed by SIGTERM"), std::string::npos) << process.errors();
  for (const pid_t pid : pids) EXPECT_FALSE(is_alive(pid));
}

TEST(Command, NothingSurvivesAKilledLauncher) {
  Process process(run_command({"-n", "2", "--", RANK_PROGRAM, "grandchild"}));
  const auto pids = process.wait_for("ready", 2);
  const auto grandchildren = process.wait_for("grandchild", 2);
  process.signal(SIGKILL);
  EXPECT_EQ(process.wait(), 137);
  for (const pid_t pid : pids) EXPECT_TRUE(is_gone_soon(pid));
  for (const pid_t pid : grandchildren) EXPECT_TRUE(is_gone_soon(pid));
}

TEST(Command, ManyLaunchesAtOnceDoNotMeet) {
  std::vector<std::unique_ptr<Process>> processes;
  for (int i = 0; i < 8; ++i) {
    processes.push_back(
        std::make_unique<Process>(run_command({"-n", "2", "--", RANK_PROGRAM, "arguments", std::to_string(i)})));
  }
  for (auto& process : processes) EXPECT_EQ(process->wait(), 0) << process->errors();
}

}  // namespace
}  // namespace ddp::test
