#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launch/spawn.h"

/// Ranks as processes, for tests. Link ddp_launch.
namespace ddp::test {

struct RankOutput {
  int exit_code = 0;  ///< the rank's own, or 128 + signal
  int signal = 0;
  std::string output;  ///< standard output, lines ended by "\n"
  std::string errors;  ///< standard error
};

struct ProcessRun {
  launch::RunResult result;
  std::vector<RankOutput> ranks;
  std::vector<std::string> notes;  ///< the launcher's own lines
};

/// Defaults for tests: no binding, short times, and every rank is left to end by itself (or at the time limit),
/// so that each one's own way to fail shows.
inline launch::SpawnOptions process_options() {
  launch::SpawnOptions options;
  options.bind = false;
  options.end_others = false;
  options.grace = std::chrono::seconds(1);
  options.time_limit = std::chrono::seconds(60);
  return options;
}

/// Runs `program` as `nproc` ranks and collects how each ended and what it wrote.
inline ProcessRun run_ranks(const std::string& program, int nproc, const std::vector<std::string>& arguments = {},
                            launch::SpawnOptions options = process_options()) {
  ProcessRun run;
  run.ranks.resize(static_cast<std::size_t>(nproc));
  options.nproc = nproc;
  options.command = {program};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.on_line = [&run](int rank, launch::OutputStream stream, std::string_view line) {
    RankOutput& output = run.ranks[static_cast<std::size_t>(rank)];
    std::string& text = stream == launch::OutputStream::standard ? output.output : output.errors;
    text.append(line);
    text += '\n';
  };
  options.on_note = [&run](std::string_view line) { run.notes.emplace_back(line); };
  run.result = launch::spawn(options);
  for (const launch::RankResult& rank : run.result.ranks) {
    RankOutput& output = run.ranks[static_cast<std::size_t>(rank.rank)];
    output.exit_code = rank.exit_code;
    output.signal = rank.signal;
  }
  return run;
}

}  // namespace ddp::test
