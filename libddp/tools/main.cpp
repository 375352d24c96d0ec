#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "arguments.h"
#include "launch/spawn.h"
#include "verbs.h"

namespace {

constexpr char kHelp[] =
    "ddp: distributed data-parallel training\n"
    "\n"
    "Usage: ddp VERB [OPTIONS]\n"
    "\n"
    "  run        start the ranks of a training program on this machine\n"
    "\n"
    "  --help     print this help, or after a verb that verb's\n"
    "  --version  print the version\n";

int dispatch(const std::string& verb, const std::vector<std::string>& words) {
  if (verb == "run") return ddp::tools::run(words);
  if (verb == "--version") {
    std::puts("ddp " DDP_VERSION);
    return 0;
  }
  if (verb == "--help" || verb == "-h" || verb == "help") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  throw ddp::tools::UsageError("ddp: unknown verb '" + verb + "'; allowed: run (ddp --help tells more)");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto complain = [](const std::exception& error, const char* prefix) {
    std::fprintf(stderr, "%s%s\n", prefix, error.what());
  };
  try {
    if (words.empty()) throw ddp::tools::UsageError("ddp: no verb given; allowed: run (ddp --help tells more)");
    return dispatch(words.front(), {words.begin() + 1, words.end()});
  } catch (const ddp::tools::UsageError& error) {
    complain(error, "");
    return 2;
  } catch (const ddp::InvalidArgument& error) {
    complain(error, "ddp: ");
    return 2;
  } catch (const ddp::launch::CannotStart& error) {
    complain(error, "ddp: ");
    return error.exit_code();
  } catch (const std::exception& error) {
    complain(error, "ddp: ");
    return 1;
  }
}
