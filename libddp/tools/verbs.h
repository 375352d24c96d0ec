#pragma once

#include <string>
#include <vector>

/// The verbs of the command: each parses its words, does its work and returns the exit code.
namespace ddp::tools {

int run(const std::vector<std::string>& words);

}  // namespace ddp::tools
