// What ranks that share a GPU are given, with a stand-in for the Multi-Process Service's control program.
#include "launch/gpu_sharing.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ddp/core/error.h"
#include "process.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;

class GpuSharingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ddp-sharing-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::copy_file(FAKE_MPS_CONTROL, folder_ / "nvidia-cuda-mps-control");
    old_path_ = std::getenv("PATH");
    ::setenv("PATH", (folder_.string() + ":" + old_path_).c_str(), 1);
    ::setenv("FAKE_MPS_LOG", log_path().c_str(), 1);
    ::setenv("CUDA_MPS_PIPE_DIRECTORY", (folder_ / "other").c_str(), 1);  // not the one of this machine
  }
  void TearDown() override {
    ::setenv("PATH", old_path_.c_str(), 1);
    for (const char* name : {"FAKE_MPS_LOG", "FAKE_MPS_FAILS", "FAKE_MPS_STAYS", "CUDA_MPS_PIPE_DIRECTORY"}) {
      ::unsetenv(name);
    }
    fs::remove_all(folder_);
  }
  std::string log_path() const { return (folder_ / "log.txt").string(); }
  std::string log() const {
    std::ifstream file(log_path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  pid_t daemon() const { return test::numbers_after(log(), "daemon").at(0); }

  fs::path folder_;
  std::string old_path_;
};

TEST_F(GpuSharingTest, StartsADaemonOfItsOwnAndStopsIt) {
  std::map<std::string, std::string> environment{{"DDP_RUN_ID", "abc"}};
  std::string pipe;
  pid_t pid = 0;
  {
    const auto sharing = share_gpus(4, 1);
    ASSERT_TRUE(sharing);
    EXPECT_NE(sharing->text.find("4 ranks share 1 GPU"), std::string::npos);
    EXPECT_NE(sharing->text.find("CUDA MPS started for this run"), std::string::npos);
    sharing->add_to(environment, 3);
    pipe = environment.at("CUDA_MPS_PIPE_DIRECTORY");
    EXPECT_EQ(log(), concat("start pipe=", pipe, " log=", environment.at("CUDA_MPS_LOG_DIRECTORY"), "\ndaemon ",
                            daemon(), "\n"));
    pid = daemon();
    EXPECT_TRUE(test::is_alive(pid));
  }
  EXPECT_EQ(environment.at("NCCL_HOSTID"), "abc-3");
  EXPECT_EQ(environment.at("DDP_SHARE_GPU"), "1");
  EXPECT_TRUE(log().ends_with("\nquit\n")) << log();
  EXPECT_TRUE(test::is_gone_soon(pid));
  EXPECT_FALSE(fs::exists(fs::path(pipe).parent_path()));
}

TEST_F(GpuSharingTest, KillsADaemonThatDoesNotStop) {
  ::setenv("FAKE_MPS_STAYS", "1", 1);
  std::string why;
  auto daemon_here = MpsDaemon::start(why);
  ASSERT_NE(daemon_here, nullptr);
  const pid_t pid = daemon();
  daemon_here.reset();
  EXPECT_TRUE(test::is_gone_soon(pid));
}

TEST_F(GpuSharingTest, LeavesOneThatRunsAlone) {
  fs::create_directory(folder_ / "other");
  std::ofstream(folder_ / "other" / "nvidia-cuda-mps-control.pid") << ::getpid() << '\n';
  const auto sharing = share_gpus(2, 1);
  ASSERT_TRUE(sharing);
  ASSERT_NE(sharing->mps, nullptr);
  EXPECT_FALSE(sharing->mps->started_here());
  EXPECT_NE(sharing->text.find("the CUDA MPS that runs"), std::string::npos);
  EXPECT_EQ(log(), "");
  std::map<std::string, std::string> environment;
  sharing->add_to(environment, 0);
  EXPECT_FALSE(environment.contains("CUDA_MPS_PIPE_DIRECTORY"));  // the rank inherits it
}

TEST_F(GpuSharingTest, ADaemonThatDoesNotStartIsAnErrorThatQuotesIt) {
  ::setenv("FAKE_MPS_FAILS", "1", 1);
  try {
    share_gpus(2, 1);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("ended with code 3: no permission"), std::string::npos) << error.what();
  }
}

TEST_F(GpuSharingTest, KeepsWhatTheUserHasSet) {
  const auto sharing = share_gpus(2, 1);
  ASSERT_TRUE(sharing);
  std::map<std::string, std::string> environment{{"NCCL_SOCKET_IFNAME", "eth0"}, {"NCCL_SOCKET_NTHREADS", "4"}};
  sharing->add_to(environment, 1);
  EXPECT_EQ(environment.at("NCCL_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(environment.at("NCCL_SOCKET_NTHREADS"), "4");
  EXPECT_EQ(environment.at("NCCL_NSOCKS_PERTHREAD"), "1");
}

TEST_F(GpuSharingTest, EnoughGpusNeedNothing) {
  EXPECT_FALSE(share_gpus(2, 2));
  EXPECT_EQ(log(), "");
}

TEST_F(GpuSharingTest, WithoutAGpuItIsAnError) { EXPECT_THROW(share_gpus(2, 0), InvalidArgument); }

}  // namespace
}  // namespace ddp::launch
