// Short runs of the example programs: what they print, their JSON lines, and that ranks add up to one process.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "programs.h"

namespace ddp::test {
namespace {

using Json = nlohmann::json;

const std::set<std::string> kEpochKeys = {"event", "epoch", "loss", "accuracy", "seconds"};
const std::set<std::string> kSummaryKeys = {
    "event",       "model",         "mode",         "backend", "device",         "dtype",         "world_size",
    "threads",     "steps",         "batch_size",   "step_ms", "samples_per_s",  "test_accuracy", "buckets",
    "collectives", "bytes_reduced", "bytes_copied", "comm_ms", "exposed_comm_ms"};

std::set<std::string> keys(const Json& object) {
  std::set<std::string> names;
  for (const auto& [name, value] : object.items()) names.insert(name);
  return names;
}

struct Training {
  Ended ended;
  std::vector<Json> lines;
  const Json& epoch() const { return lines.at(0); }
  const Json& summary() const { return lines.back(); }
};

/// Runs `program` on that many ranks (0: alone, in local mode) and reads its JSON lines.
Training train(const std::string& program, int ranks, std::vector<std::string> options) {
  const TempFolder folder;
  const std::string path = (folder / "run.jsonl").string();
  std::vector<std::string> command;
  if (ranks > 0) command = {DDP_COMMAND, "run", "-n", std::to_string(ranks), "--no-bind", "--"};
  command.insert(command.end(), {program, "--mode", ranks > 0 ? "ddp" : "local", "--json", path});
  command.insert(command.end(), options.begin(), options.end());
  Training run{.ended = run_program(command), .lines = {}};
  EXPECT_EQ(run.ended.code, 0) << run.ended.errors;
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) run.lines.push_back(Json::parse(line));
  if (run.lines.empty()) throw std::runtime_error("no JSON lines: " + run.ended.errors);
  return run;
}

struct Model {
  std::string name;
  std::string program;
  std::int64_t parameters;
  int first_plan;  ///< buckets of 0.5 MiB, float64, in reverse order of the parameters
  int buckets;     ///< in order of arrival, where a layer's weight comes before its bias
};
const std::vector<Model> kModels = {{"mlp", TRAIN_MLP, 1863690, 2, 3}, {"cnn", TRAIN_CNN, 1199882, 2, 2}};

TEST(Run, TwoRanksAreOneProcessWithTheDoubledBatch) {
  const SmallData data;
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    const auto options = [&](const std::string& batch, const std::string& cap) {
      return std::vector<std::string>{"--data", data.path(),    "--dtype", "float64",         "--steps",
                                      "4",      "--batch-size", batch,     "--bucket-cap-mb", cap};
    };
    const Training one = train(model.program, 0, options("8", "25"));
    for (const bool whole : {true, false}) {
      const std::string cap = whole ? "100" : "0.5";
      SCOPED_TRACE(cap + " MiB");
      const Training two = train(model.program, 2, options("4", cap));
      // The same sums in another order: rounding of float64, grown over 4 steps.
      EXPECT_NEAR(two.epoch()["loss"].get<double>(), one.epoch()["loss"].get<double>(), 1e-9);
      EXPECT_EQ(two.epoch()["accuracy"], one.epoch()["accuracy"]);
      const Json& summary = two.summary();
      // Step 1 has the plan in reverse order of the parameters, steps 2 to 4 that in order of arrival.
      const int buckets = summary["buckets"];
      const int first_plan = summary["collectives"].get<int>() - 3 * buckets;
      EXPECT_EQ(buckets, whole ? 1 : model.buckets);
      EXPECT_EQ(first_plan, whole ? 1 : model.first_plan);
      // All gradients, and little besides: padding and the status word.
      const std::int64_t payload = 4 * 8 * model.parameters;
      EXPECT_GE(summary["bytes_reduced"].get<std::int64_t>(), payload);
      EXPECT_LE(summary["bytes_reduced"].get<std::int64_t>(), payload + payload / 100);
      EXPECT_EQ(summary["bytes_copied"].get<int>(), 0);
    }
  }
}

TEST(Run, JsonLinesOfTwoRanks) {
  const SmallData data;
  for (const Model& model : kModels) {
    SCOPED_TRACE(model.name);
    // 96 examples, 2 ranks, batch 16: 3 steps an epoch.
    const Training run = train(model.program, 2, {"--data", data.path(), "--epochs", "2", "--batch-size", "16"});
    ASSERT_EQ(run.lines.size(), 3U);
    for (int epoch = 0; epoch < 2; ++epoch) {
      const Json& line = run.lines[static_cast<std::size_t>(epoch)];
      EXPECT_EQ(keys(line), kEpochKeys);
      EXPECT_EQ(line["event"], "epoch");
      EXPECT_EQ(line["epoch"], epoch + 1);
      EXPECT_GT(line["loss"].get<double>(), 0);
      EXPECT_GT(line["seconds"].get<double>(), 0);
    }
    const Json& summary = run.summary();
    EXPECT_EQ(keys(summary), kSummaryKeys);
    EXPECT_EQ(summary["event"], "summary");
    EXPECT_EQ(summary["model"], model.name);
    EXPECT_EQ(summary["mode"], "ddp");
    EXPECT_EQ(summary["backend"], "gloo");
    EXPECT_EQ(summary["device"], "cpu:0");
    EXPECT_EQ(summary["dtype"], "float32");
    EXPECT_EQ(summary["world_size"], 2);
    EXPECT_EQ(summary["batch_size"], 16);
    EXPECT_EQ(summary["steps"], 6);
    EXPECT_EQ(summary["test_accuracy"], run.lines[1]["accuracy"]);
    EXPECT_EQ(summary["collectives"].get<int>(), 6 * summary["buckets"].get<int>());
    EXPECT_EQ(summary["bytes_copied"], 0);
    EXPECT_GT(summary["step_ms"].get<double>(), 0);
    EXPECT_GT(summary["samples_per_s"].get<double>(), 0);
    EXPECT_GE(summary["comm_ms"].get<double>(), 0);
    EXPECT_GE(summary["exposed_comm_ms"].get<double>(), 0);
    // Only rank 0 talks.
    EXPECT_NE(run.ended.output.find("[rank 0] epoch 2  loss "), std::string::npos) << run.ended.output;
    EXPECT_EQ(run.ended.output.find("[rank 1]"), std::string::npos) << run.ended.output;
  }
}

TEST(Run, LocalModeReducesNothing) {
  const SmallData data;
  const Training run = train(TRAIN_CNN, 0, {"--data", data.path(), "--epochs", "1", "--batch-size", "32"});
  const Json& summary = run.summary();
  EXPECT_EQ(keys(summary), kSummaryKeys);
  EXPECT_EQ(summary["mode"], "local");
  EXPECT_EQ(summary["backend"], "none");
  EXPECT_EQ(summary["world_size"], 1);
  EXPECT_EQ(summary["steps"], 3);
  for (const char* key : {"buckets", "collectives", "bytes_reduced", "bytes_copied"}) EXPECT_EQ(summary[key], 0) << key;
}

TEST(Run, OneRankOfDdpIsLocalTraining) {
  const SmallData data;
  const std::vector<std::string> options = {"--data", data.path(), "--epochs", "1", "--batch-size", "32"};
  const Training local = train(TRAIN_MLP, 0, options);
  const Training ddp = train(TRAIN_MLP, 1, options);
  EXPECT_EQ(ddp.summary()["world_size"], 1);
  EXPECT_EQ(ddp.summary()["collectives"], 0);
  EXPECT_EQ(ddp.epoch()["loss"], local.epoch()["loss"]);
}

TEST(Run, TheBarsAreLearnt) {
  const SmallData data;
  const Training run = train(TRAIN_MLP, 2, {"--data", data.path(), "--epochs", "5", "--batch-size", "8"});
  // Every image shows its label as a bar; guessing gives 0.1.
  EXPECT_GE(run.summary()["test_accuracy"].get<double>(), 0.9);
}

TEST(Run, Synthetic) {
  // The test set has 10000 images, which is too many for a test of the convolutions.
  const Training run = train(TRAIN_MLP, 2, {"--synthetic", "--steps", "3", "--batch-size", "8"});
  EXPECT_EQ(run.summary()["steps"], 3);
  EXPECT_EQ(run.summary()["collectives"].get<int>(), 3 * run.summary()["buckets"].get<int>());
  EXPECT_EQ(run.summary()["bytes_copied"], 0);
}

TEST(Run, AnErrorOnAllRanksEndsTheRun) {
  const SmallData data;
  const Ended ended = run_program(
      {DDP_COMMAND, "run", "-n", "2", "--no-bind", "--", TRAIN_MLP, "--data", data.path(), "--batch-size", "49"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.errors.find("batch_size 49 is larger than the 48 examples that the sampler gives"), std::string::npos)
      << ended.errors;
  const Ended usage = run_program({DDP_COMMAND, "run", "-n", "2", "--no-bind", "--", TRAIN_MLP, "--epochs", "0"});
  EXPECT_EQ(usage.code, 2);
}

TEST(Run, QuickstartReadsTheFolderFromTheEnvironment) {
  const SmallData data;
  const Ended ended =
      run_program({DDP_COMMAND, "run", "-n", "1", "--no-bind", "--", QUICKSTART}, {"DDP_DATA_DIR=" + data.path()});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_NE(ended.output.find("[rank 0] epoch 0 loss "), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("[rank 0] epoch 1 loss "), std::string::npos) << ended.output;
}

}  // namespace
}  // namespace ddp::test
