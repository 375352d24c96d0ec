#include <chrono>
#include <cstdio>

#include "arguments.h"
#include "ddp/core/device.h"
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
  bool one_per_gpu = false;
  arguments.required_integer_or_word("-n,--nproc-per-node", options.nproc, 1, launch::kMaxRanks, "gpu", one_per_gpu,
                                     "Ranks to start; gpu: one for each GPU");
  arguments.flag("--share-gpu", options.share_gpu,
                 "Let several ranks share a GPU: for trying things out, not for speed");
  arguments.flag("--no-bind", no_bind, "Do not bind ranks to cores");
  arguments.text("--master-addr", options.master_addr, "Address at which the ranks meet (default 127.0.0.1)");
  arguments.integer("--master-port", options.master_port, 1, 65535, "Port at which they meet (default: a free one)");
  arguments.number("--timeout-grace", grace_seconds, 0, 86400,
                   "Seconds between SIGTERM and SIGKILL when ranks are ended (default 8)");
  arguments.program(options.command);
  if (!arguments.parse(words)) return 0;

  if (one_per_gpu) {
    const int gpus = device_count(DeviceType::cuda);
    if (gpus == 0) throw UsageError("ddp run: -n gpu: there is no GPU that CUDA can use (ddp run --help tells more)");
    options.nproc = gpus;
    if (gpus == 1 && !options.share_gpu) {
      std::fprintf(stderr,
                   "ddp run: 1 GPU, so 1 rank, which has nobody to exchange gradients with; "
                   "-n 2 --share-gpu lets two ranks share it\n");
    }
  }
  options.bind = !no_bind;
  options.grace = std::chrono::milliseconds(static_cast<std::int64_t>(grace_seconds * 1000));
  const launch::RunResult result = launch::spawn(options);
  if (!result.summary.empty()) std::fprintf(stderr, "ddp run: %s", result.summary.c_str());
  return result.exit_code;
}

}  // namespace ddp::tools
