// What the example programs say, and with which exit code, when they cannot do what they are asked.
#include <gtest/gtest.h>

#include <algorithm>

#include "ddp/core/error.h"
#include "programs.h"

namespace ddp::test {
namespace {

const std::vector<std::string> kPrograms = {TRAIN_MLP, TRAIN_CNN};

/// One line on stderr that names the program, nothing on stdout, and the code.
void expect_line(const Ended& ended, int code, const std::string& program, const std::string& text) {
  EXPECT_EQ(ended.code, code) << ended.errors;
  EXPECT_EQ(ended.output, "");
  EXPECT_EQ(ended.errors, concat(program, ": ", text, "\n"));
}

void expect_usage(const std::string& program, const std::vector<std::string>& options, const std::string& text) {
  std::vector<std::string> command = {program};
  command.insert(command.end(), options.begin(), options.end());
  expect_line(run_program(command), 2, program, text + " (see --help)");
}

std::vector<std::string> local(const std::string& program, const SmallData& data) {
  return {program, "--mode", "local", "--data", data.path(), "--batch-size", "8", "--steps", "1"};
}

TEST(Usage, HelpGoesToStdout) {
  for (const std::string& program : kPrograms) {
    const Ended help = run_program({program, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.errors, "");
    for (const std::string option :
         {"--mode local|ddp", "--device NAME", "--data DIR", "--synthetic", "--epochs N", "--steps N", "--batch-size N",
          "--lr X", "--momentum X", "--seed N", "--bucket-cap-mb X", "--dtype float32|float64", "--json FILE",
          "Usage: ddp run -n N -- train_", "OMP_NUM_THREADS"}) {
      EXPECT_NE(help.output.find(option), std::string::npos) << option << " is not in\n" << help.output;
    }
  }
}

TEST(Usage, BadOptionsAreCode2) {
  for (const std::string& program : kPrograms) {
    expect_usage(program, {"--bogus"}, "unknown option '--bogus'");
    expect_usage(program, {"extra"}, "unexpected 'extra'");
    expect_usage(program, {"--synthetic", "--data", "x"}, "--data and --synthetic exclude each other");
    // No thread option by design: threads come from the launcher.
    expect_usage(program, {"--threads", "2"}, "unknown option '--threads'");
  }
}

TEST(Usage, BadValuesAreCode2AndSayWhatIsAllowed) {
  const auto expect = [](const std::string& option, const std::string& bad, const std::string& allowed) {
    expect_usage(TRAIN_MLP, {option, bad}, concat(option, " is '", bad, "'; allowed: ", allowed));
  };
  expect("--mode", "both", "local, ddp");
  expect("--dtype", "float16", "float32, float64");
  expect("--device", "gpu", "cpu, cpu:N, cuda, cuda:N");
  expect_usage(TRAIN_MLP, {"--device", "cpu:-1"},
               "--device 'cpu:-1': the number is '-1'; allowed: a whole number from 0 to 63");
  for (const std::string bad : {"0", "-1", "2.5", "x", "3x", "100001"}) {
    expect("--epochs", bad, "a whole number from 1 to 100000");
  }
  for (const std::string bad : {"0", "1073741825", "99999999999999999999"}) {
    expect("--batch-size", bad, "a whole number from 1 to 1073741824");
  }
  expect("--steps", "-1", "a whole number from 0 to 1099511627776");
  expect("--seed", "-1", "a whole number from 0 to 18446744073709551615");
  for (const std::string bad : {"nan", "-0.1", "inf", "0,05"}) expect("--lr", bad, "a number from 0 to 1e+06");
  expect("--momentum", "1.5", "a number from 0 to 1");
  expect("--bucket-cap-mb", "0", "a number from 1e-06 to 1e+06");
  for (const std::string option : {"--json", "--data"}) {
    expect_usage(TRAIN_MLP, {option, "--synthetic"}, option + " is '--synthetic'; allowed: a path");
  }
}

TEST(Usage, RanksMustBeSaid) {
  const std::string text =
      "RANK is not set; start the program with `ddp run -n N -- PROGRAM` (or torchrun, mpirun, srun)";
  for (const std::string& program : kPrograms) {
    expect_line(run_program({program, "--synthetic"}), 1, program, text);
    expect_line(run_program({program, "--mode", "local", "--synthetic"}, {"WORLD_SIZE=2"}), 1, program,
                "--mode local trains in this process alone, but WORLD_SIZE is 2: every rank would train its own model; "
                "use --mode ddp");
  }
  const Ended quickstart = run_program({QUICKSTART});
  EXPECT_EQ(quickstart.code, 1);
  EXPECT_EQ(quickstart.output, "");
  EXPECT_EQ(quickstart.errors, text + "\n");
}

TEST(Usage, DeviceThatIsNotThere) {
  expect_line(
      run_program({TRAIN_MLP, "--mode", "local", "--synthetic", "--device", "cuda:7"}, {"CUDA_VISIBLE_DEVICES="}), 1,
      TRAIN_MLP, "device cuda:7 cannot be used: there are 0 CUDA devices here");
}

TEST(BadData, MissingFolderAndFile) {
  const SmallData data;
  for (const std::string& program : kPrograms) {
    expect_line(run_program({program, "--mode", "local", "--data", data.path() + "/none"}), 1, program,
                data.path() + "/none: has neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz");
  }
  std::filesystem::remove(data / "t10k-labels-idx1-ubyte");
  expect_line(run_program(local(TRAIN_MLP, data)), 1, TRAIN_MLP,
              data.path() + ": has neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte.gz");
}

TEST(BadData, EmptyFolderFromTheEnvironment) {
  const TempFolder empty;
  const Ended ended = run_program({TRAIN_MLP, "--mode", "local"}, {"DDP_DATA_DIR=" + empty.path().string()});
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(std::count(ended.errors.begin(), ended.errors.end(), '\n'), 1) << ended.errors;
  EXPECT_NE(ended.errors.find(empty.path().string()), std::string::npos) << ended.errors;
}

TEST(BadData, TruncatedFile) {
  const SmallData data;
  Bytes cut = images(SmallData::kTest);
  cut.resize(cut.size() - 100);
  write_plain(data / "t10k-images-idx3-ubyte", cut);
  const Ended ended = run_program(local(TRAIN_CNN, data));
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.output, "");
  EXPECT_EQ(std::count(ended.errors.begin(), ended.errors.end(), '\n'), 1) << ended.errors;
  // 30 images of 28 x 28.
  for (const std::string part : {"t10k-images-idx3-ubyte: truncated", "23520 bytes"}) {
    EXPECT_NE(ended.errors.find(part), std::string::npos) << ended.errors;
  }
}

TEST(BadData, LabelOutOfRange) {
  const SmallData data;
  Bytes bad = labels(SmallData::kTrain);
  bad[8 + 17] = 10;
  write_gzip(data / "train-labels-idx1-ubyte.gz", bad);
  const Ended ended = run_program(local(TRAIN_MLP, data));
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.output, "");
  EXPECT_EQ(std::count(ended.errors.begin(), ended.errors.end(), '\n'), 1) << ended.errors;
  for (const std::string part : {"train-labels-idx1-ubyte.gz", "label 10", "17"}) {
    EXPECT_NE(ended.errors.find(part), std::string::npos) << ended.errors;
  }
}

TEST(BadData, BatchLargerThanTheDataLeavesNoFile) {
  const SmallData data;
  const std::string json = (data / "run.jsonl").string();
  const Ended ended =
      run_program({TRAIN_MLP, "--mode", "local", "--data", data.path(), "--batch-size", "97", "--json", json});
  expect_line(ended, 1, TRAIN_MLP,
              "DataLoader: batch_size 97 is larger than the 96 examples that the sampler gives (dataset of 96)");
  EXPECT_FALSE(std::filesystem::exists(json));
  EXPECT_FALSE(std::filesystem::exists(json + ".partial"));
}

TEST(BadData, JsonThatCannotBeWritten) {
  const SmallData data;
  std::vector<std::string> command = local(TRAIN_MLP, data);
  command.insert(command.end(), {"--json", data.path() + "/none/run.jsonl"});
  expect_line(run_program(command), 1, TRAIN_MLP, concat("cannot write '", data.path(), "/none/run.jsonl.partial'"));
  command.back() = data.path();  // said before the run, not after it
  expect_line(run_program(command), 1, TRAIN_MLP, concat("cannot write '", data.path(), "': it is a folder"));
  EXPECT_FALSE(std::filesystem::exists(data.path() + ".partial"));
}

}  // namespace
}  // namespace ddp::test
