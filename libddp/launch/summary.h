#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/spawn.h"

namespace ddp::launch {

/// The line in which a rank says why it failed, from its newest lines of standard error: the text of an
/// uncaught exception, else the last line that is not blank. Empty if there is none.
std::string error_line(const std::vector<std::string>& last_errors);

/// Which failure came first. `failures`: ranks in the order in which they ended. A rank that ended earlier only
/// because its peers were going away names them ("rank 1 ..."): then the one of them is meant that failed too and names
/// nobody.
std::optional<int> find_first_failure(const std::vector<RankResult>& ranks, const std::vector<int>& failures);

/// The text of RunResult::summary.
std::string summarize(const RunResult& result);

/// "SIGTERM".
std::string signal_name(int signal);

}  // namespace ddp::launch
