// Ranks that are processes: how they find each other, and what they say when they cannot.
#include <gtest/gtest.h>

#include <filesystem>

#include "comm/nccl/make_group.h"
#include "comm/process_group_conformance.h"
#include "launch/process.h"

namespace ddp::test {
namespace {

std::uint16_t free_port() { return comm::TCPStoreServer("127.0.0.1").port(); }

/// Starts the rank program with these variables, and no other that a launcher may have set around this test.
class Rank : public Process {
 public:
  Rank(std::vector<std::string> variables, const std::vector<std::string>& arguments)
      : Process(command(std::move(variables), arguments)) {}

 private:
  static std::vector<std::string> command(std::vector<std::string> variables,
                                          const std::vector<std::string>& arguments) {
    std::vector<std::string> words{"/usr/bin/env"};
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                             "SLURM_PROCID", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_JOB_ID", "PMIX_NAMESPACE"}) {
      words.insert(words.end(), {"-u", name});
    }
    words.insert(words.end(), variables.begin(), variables.end());
    words.emplace_back(RANK_PROGRAM);
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
};

std::vector<std::string> variables(int rank, int size, std::uint16_t port, const std::string& host = "127.0.0.1") {
  return {concat("RANK=", rank), concat("WORLD_SIZE=", size), concat("MASTER_ADDR=", host),
          concat("MASTER_PORT=", port)};
}

std::vector<std::unique_ptr<Rank>> start(int size, const std::vector<std::string>& arguments,
                                         const std::string& host = "127.0.0.1") {
  std::vector<std::unique_ptr<Rank>> ranks;
  const std::uint16_t port = free_port();
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<Rank>(variables(rank, size, port, host), arguments));
  }
  return ranks;
}

std::vector<pid_t> sums(const Rank& rank) { return numbers_after(rank.output(), "sum"); }

TEST(InitTest, RanksMeetAndSum) {
  for (const char* host : {"127.0.0.1", " localhost"}) {
    const auto ranks = start(3, {"sum"}, host);
    for (const auto& rank : ranks) {
      EXPECT_EQ(rank->wait(), 0) << rank->errors();
      EXPECT_EQ(sums(*rank), (std::vector<pid_t>{6}));
    }
  }
}

TEST(InitTest, OtherLaunchersVariables) {
  const std::uint16_t port = free_port();
  Rank mpi({"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
            concat("MASTER_PORT=", port)},
           {"sum"});
  Rank slurm({"SLURM_PROCID=1", "SLURM_NTASKS=2", "MASTER_ADDR=127.0.0.1", concat("MASTER_PORT=", port)}, {"sum"});
  EXPECT_EQ(mpi.wait(), 0) << mpi.errors();
  EXPECT_EQ(slurm.wait(), 0) << slurm.errors();
  EXPECT_EQ(sums(slurm), (std::vector<pid_t>{3}));
}

TEST(InitTest, OneRankNeedsNoAddress) {
  Rank rank({"RANK=0", "WORLD_SIZE=1"}, {"sum"});
  EXPECT_EQ(rank.wait(), 0) << rank.errors();
  EXPECT_EQ(sums(rank), (std::vector<pid_t>{1}));
}

struct BadValue {
  std::vector<std::string> variables;
  std::vector<std::string> parts;
};

TEST(InitTest, WrongVariablesAreNamedBeforeAnyNetworking) {
  const std::vector<BadValue> cases{
      {{"WORLD_SIZE=2"}, {"RANK is not set", "ddp run"}},
      {{"RANK=0"}, {"WORLD_SIZE is not set", "ddp run"}},
      {{"RANK=2", "WORLD_SIZE=2"}, {"RANK is 2", "WORLD_SIZE 2", "0 to 1"}},
      {{"RANK=-1", "WORLD_SIZE=2"}, {"RANK", "'-1'"}},
      {{"RANK=one", "WORLD_SIZE=2"}, {"RANK", "'one'"}},
      {{"RANK=0", "WORLD_SIZE=0"}, {"WORLD_SIZE", "'0'"}},
      {{"RANK=0", "WORLD_SIZE=2"}, {"MASTER_PORT is not set"}},
      {{"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=4000"}, {"MASTER_ADDR is not set"}},
      {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a b", "MASTER_PORT=4000"}, {"'a b'"}},
      {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=70123"}, {"'70123'", "1 to 65535"}},
      {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0"}, {"'0'", "1 to 65535"}},
      {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=-1"}, {"'-1'", "1 to 65535"}},
      {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=http"}, {"'http'", "1 to 65535"}},
      {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="}, {"''", "1 to 65535"}},
  };
  for (const auto& bad : cases) {
    // The time-out is long: an error that waits for it fails this test at its own limit.
    Rank rank(bad.variables, {"sum", "600000"});
    EXPECT_EQ(rank.wait(), 1);
    for (const auto& part : bad.parts) EXPECT_CONTAINS(rank.errors(), part);
  }
}

TEST(InitTest, BackendsThatAreNotThereAreNamed) {
  const auto unknown =
      error_text<InvalidArgument>([] { comm::init_process_group({.backend = "mpi", .rank = 0, .size = 1}); });
  EXPECT_CONTAINS(unknown, "'mpi'");
  EXPECT_CONTAINS(unknown, "gloo, nccl");
  EXPECT_CONTAINS(error_text<InvalidArgument>([] {
                    comm::init_process_group({.backend = "gloo", .device = Device::cuda(0), .rank = 0, .size = 1});
                  }),
                  "cuda:0");
  const bool built = comm::nccl_is_built();
  if (built && device_count(DeviceType::cuda) > 0) return;
  const auto nccl =
      error_text<NotAvailable>([] { comm::init_process_group({.backend = "nccl", .rank = 0, .size = 1}); });
  EXPECT_CONTAINS(nccl, built ? "there is no GPU" : "DDP_WITH_NCCL");
}

TEST(InitTest, AUsedPortAndAnUnknownHostAreNamed) {
  const comm::TCPStoreServer other("127.0.0.1");
  Rank busy(variables(0, 2, other.port()), {"sum", "60000"});
  EXPECT_EQ(busy.wait(), 1);
  EXPECT_CONTAINS(busy.errors(), "in use");
  EXPECT_CONTAINS(busy.errors(), concat("127.0.0.1:", other.port()));
  Rank lost(variables(1, 2, 4000, "nowhere.invalid"), {"sum", "2000"});
  EXPECT_EQ(lost.wait(), 1);
  EXPECT_CONTAINS(lost.errors(), "'nowhere.invalid'");
}

TEST(InitTest, AMissingRankIsNamedByAll) {
  const std::uint16_t port = free_port();
  Rank zero(variables(0, 4, port), {"sum", "1200"});
  Rank one(variables(1, 4, port), {"sum", "1200"});
  Rank three(variables(3, 4, port), {"sum", "1200"});
  for (Rank* rank : {&zero, &one, &three}) {
    EXPECT_EQ(rank->wait(), 1);
    EXPECT_CONTAINS(rank->errors(), "missing: rank 2");
    EXPECT_CONTAINS(rank->errors(), "1200 ms");
  }
  Rank alone(variables(1, 2, free_port()), {"sum", "400"});
  EXPECT_EQ(alone.wait(), 1);
  EXPECT_CONTAINS(alone.errors(), "rank 0");
  EXPECT_CONTAINS(alone.errors(), "missing");
}

TEST(InitTest, ARankThatComesTwiceIsNamedByAll) {
  const std::uint16_t port = free_port();
  Rank zero(variables(0, 3, port), {"sum", "10000"});
  Rank two(variables(2, 3, port), {"sum", "10000"});
  Rank again(variables(2, 3, port), {"sum", "10000"});
  for (Rank* rank : {&zero, &two, &again}) {
    EXPECT_EQ(rank->wait(), 1) << rank->output();
    EXPECT_CONTAINS(rank->errors(), "rank 2 is registered twice");
    EXPECT_CONTAINS(rank->errors(), concat("process ", two.pid()));
    EXPECT_CONTAINS(rank->errors(), concat("process ", again.pid()));
    EXPECT_CONTAINS(rank->errors(), "on host ");
  }
}

TEST(InitTest, DifferentWorldSizesAreNamedByAll) {
  const std::uint16_t port = free_port();
  Rank zero(variables(0, 3, port), {"sum", "10000"});
  Rank one(variables(1, 4, port), {"sum", "10000"});
  for (Rank* rank : {&zero, &one}) {
    EXPECT_EQ(rank->wait(), 1);
    EXPECT_CONTAINS(rank->errors(), "rank 0 has 3");
    EXPECT_CONTAINS(rank->errors(), "rank 1 has 4");
  }
}

TEST(InitTest, ALateExtraRankIsRefusedAndDisturbsNobody) {
  const std::uint16_t port = free_port();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(
        std::make_unique<Rank>(variables(rank, 2, port), std::vector<std::string>{"slow", "10000", "1500"}));
  }
  for (const auto& rank : ranks) rank->wait_for("ready", 1);
  Rank twin(variables(1, 2, port), {"sum", "10000"});
  Rank more(variables(2, 3, port), {"sum", "10000"});
  for (Rank* extra : {&twin, &more}) {
    EXPECT_EQ(extra->wait(), 1);
    EXPECT_CONTAINS(extra->errors(), "refused");
  }
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(), 0) << rank->errors();
    EXPECT_EQ(sums(*rank), (std::vector<pid_t>{3}));
  }
}

TEST(InitTest, AgainAndAgainOverOnePort) {
  const auto ranks = start(2, {"cycles", "10000", "6"});
  for (const auto& rank : ranks) {
    ASSERT_EQ(rank->wait(), 0) << rank->errors();
    EXPECT_EQ(sums(*rank), std::vector<pid_t>(6, 3));
    const auto open = numbers_after(rank->output(), "open");
    const auto threads = numbers_after(rank->output(), "threads");
    EXPECT_LE(open.back(), open.front() + 2) << rank->output();
    EXPECT_LE(threads.back(), threads.front() + 2) << rank->output();
  }
}

TEST(InitTest, ASecondMeetingBeforeTheFirstHasEnded) {
  const auto early = start(2, {"early", "10000"});
  for (const auto& rank : early) {
    EXPECT_EQ(rank->wait(), 0) << rank->errors();
    EXPECT_EQ(sums(*rank), (std::vector<pid_t>{3}));
  }
  // Both held at once.
  const auto twice = start(2, {"twice", "10000"});
  for (const auto& rank : twice) {
    EXPECT_EQ(rank->wait(), 0) << rank->errors();
    EXPECT_EQ(sums(*rank), (std::vector<pid_t>{6}));
  }
}

TEST(InitTest, AFileOfAKilledRunIsNamed) {
  const std::string path = (std::filesystem::temp_directory_path() / concat("ddp_init_test.", ::getpid())).string();
  const auto rank_with = [&](int rank, std::vector<std::string> more) {
    more.insert(more.begin(), {concat("RANK=", rank), "WORLD_SIZE=2"});
    return std::make_unique<Rank>(more, std::vector<std::string>{"file", "4000", path});
  };
  {
    const auto zero = rank_with(0, {"DIE=1"});
    const auto one = rank_with(1, {"DIE=1"});
    EXPECT_EQ(zero->wait(), 128 + SIGKILL) << zero->errors();
    EXPECT_EQ(one->wait(), 128 + SIGKILL) << one->errors();
    EXPECT_EQ(sums(*zero), (std::vector<pid_t>{3}));
  }
  const auto zero = rank_with(0, {});
  const auto one = rank_with(1, {});
  for (Rank* rank : {zero.get(), one.get()}) {
    EXPECT_EQ(rank->wait(), 1) << rank->output();
    EXPECT_CONTAINS(rank->errors(), path);
    EXPECT_CONTAINS(rank->errors(), "earlier run");
  }
  std::filesystem::remove(path);
}

TEST(InitTest, UnequalSizesNeverEndInAResult) {
  const auto ranks = start(2, {"sizes", "20000"});
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->wait(), 1) << rank->output();
    EXPECT_CONTAINS(rank->errors(), "5000 x float32");
    EXPECT_CONTAINS(rank->errors(), "7000 x float32");
    EXPECT_TRUE(numbers_after(rank->output(), "result").empty());
  }
}

TEST(InitTest, TheSurvivorsOfAKilledRankNameIt) {
  const auto ranks = start(3, {"killed", "20000"});
  EXPECT_EQ(ranks[2]->wait(), 128 + SIGKILL);
  for (int survivor = 0; survivor < 2; ++survivor) {
    const auto& rank = ranks[static_cast<std::size_t>(survivor)];
    EXPECT_EQ(rank->wait(), 1) << "a signal would be above 128";
    EXPECT_CONTAINS(rank->errors(), "rank 2");
    EXPECT_CONTAINS(rank->errors(), "lost the connection");
  }
}

}  // namespace
}  // namespace ddp::test
