#include <chrono>
#include <cstdio>

#include "arguments.h"
#include "launch/spawn.h"
#include "verbs.h"

namespace ddp::tools {

int run(const std::vector<std::string>& words) {
  launch::SpawnOptions options;
  options.forward_signals = true;
  bool no_bind = false;
  double grace_seconds = std::chrono::duration<double>(options.grace).count();

  Arguments arguments("run", "Start the ranks of a training program on this machine and see them to their end.",
                      "-n N [options] [--] PROGRAM [ARGS...]");
  arguments.required_integer("-n,--nproc-per-node", options.nproc, 1, launch::kMaxRanks, "Ranks to start");
  arguments.flag("--no-bind", no_bind, "Do not bind ranks to cores");
  arguments.text("--master-addr", options.master_addr, "Address at which the ranks meet (default 127.0.0.1)");
  arguments.integer("--master-port", options.master_port, 1, 65535, "Port at which they meet (default: a free one)");
  arguments.number("--timeout-grace", grace_seconds, 0, 86400,
                   "Seconds between SIGTERM and SIGKILL when ranks are ended (default 8)");
  arguments.program(options.command);
  if (!arguments.parse(words)) return 0;

  options.bind = !no_bind;
  options.grace = std::chrono::milliseconds(static_cast<std::int64_t>(grace_seconds * 1000));
  const launch::RunResult result = launch::spawn(options);
  if (!result.summary.empty()) std::fprintf(stderr, "ddp run: %s", result.summary.c_str());
  return result.exit_code;
}

}  // namespace ddp::tools
