#include "launch/summary.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <set>

namespace ddp::launch {
namespace {

bool is_blank(const std::string& line) {
  return std::all_of(line.begin(), line.end(), [](unsigned char c) { return std::isspace(c) != 0; });
}

// Numbers after the word "rank" or "ranks".
std::vector<int> ranks_named(const std::string& text) {
  std::vector<int> result;
  for (std::size_t at = text.find("rank"); at != std::string::npos; at = text.find("rank", at + 1)) {
    if (at > 0 && std::isalpha(static_cast<unsigned char>(text[at - 1])) != 0) continue;
    std::size_t digit = at + 4;
    if (digit < text.size() && text[digit] == 's') ++digit;
    if (digit >= text.size() || text[digit] != ' ') continue;
    ++digit;
    int value = 0;
    std::size_t end = digit;
    for (; end < text.size() && end < digit + 6 && std::isdigit(static_cast<unsigned char>(text[end])) != 0; ++end) {
      value = 10 * value + (text[end] - '0');
    }
    if (end > digit) result.push_back(value);
  }
  return result;
}

// The other failed ranks that this one's error names.
std::set<int> blamed(const RankResult& rank, const std::vector<int>& failures) {
  std::set<int> others;
  for (const int named : ranks_named(error_line(rank.last_errors))) {
    if (named != rank.rank && std::find(failures.begin(), failures.end(), named) != failures.end()) {
      others.insert(named);
    }
  }
  return others;
}

std::string how_it_ended(const RankResult& rank) {
  return rank.signal != 0 ? concat("killed by ", signal_name(rank.signal)) : concat("exit code ", rank.exit_code);
}

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", value);
  return text;
}

std::string first_failure_text(const RankResult& rank) {
  std::string text = concat("rank ", rank.rank, " failed first: ", how_it_ended(rank), " after ", seconds(rank.seconds),
                            " (pid ", rank.pid, ")\n");
  const std::string reason = error_line(rank.last_errors);
  if (reason.empty()) return text + "  it wrote nothing to standard error\n";
  text += concat("  error: ", reason, "\n");
  std::vector<std::string> lines;
  for (const auto& line : rank.last_errors) {
    if (!is_blank(line)) lines.push_back(line);
  }
  constexpr std::size_t kShown = 8;
  if (lines.size() > 1) {
    text += "  its last lines on standard error:\n";
    for (std::size_t i = lines.size() - std::min(kShown, lines.size()); i < lines.size(); ++i) {
      text += concat("    ", lines[i], "\n");
    }
  }
  return text;
}

// `first_error` is the error line of the rank that failed first, which was shown already.
std::string other_rank_text(const RankResult& rank, const std::string& first_error) {
  if (rank.ended_by_launcher != 0) {
    return concat("rank ", rank.rank, ": ended by the launcher with ", signal_name(rank.ended_by_launcher),
                  rank.signal == 0 ? concat(", exit code ", rank.exit_code) : "");
  }
  std::string reason = rank.exit_code == 0 ? "" : error_line(rank.last_errors);
  if (!reason.empty() && reason == first_error) reason = "the same error";
  return concat("rank ", rank.rank, ": ", how_it_ended(rank), reason.empty() ? "" : ": ", reason);
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? concat("SIG", name) : concat("signal ", signal);
}

std::string error_line(const std::vector<std::string>& last_errors) {
  constexpr std::string_view kWhat = "  what():  ";
  for (auto line = last_errors.rbegin(); line != last_errors.rend(); ++line) {
    if (line->starts_with(kWhat)) return line->substr(kWhat.size());
  }
  for (auto line = last_errors.rbegin(); line != last_errors.rend(); ++line) {
    if (!is_blank(*line)) return *line;
  }
  return {};
}

std::optional<int> find_first_failure(const std::vector<RankResult>& ranks, const std::vector<int>& failures) {
  if (failures.empty()) return std::nullopt;
  // From the earliest on to all that it blames, directly or through others: who of them blames nobody?
  std::vector<int> to_ask{failures.front()};
  std::set<int> seen{failures.front()};
  std::vector<int> with_own_reason;
  while (!to_ask.empty()) {
    const int rank = to_ask.back();
    to_ask.pop_back();
    const std::set<int> others = blamed(ranks[static_cast<std::size_t>(rank)], failures);
    if (others.empty()) with_own_reason.push_back(rank);
    for (const int other : others) {
      if (seen.insert(other).second) to_ask.push_back(other);
    }
  }
  // They blame each other, or several: the time decides.
  return with_own_reason.size() == 1 ? with_own_reason.front() : failures.front();
}

std::string summarize(const RunResult& result) {
  std::string text;
  if (result.first_failure) {
    text += first_failure_text(result.ranks[static_cast<std::size_t>(*result.first_failure)]);
  } else if (result.timed_out) {
    text += "the time limit was reached and all ranks were killed\n";
  } else if (result.stopped_by != 0) {
    text += concat("stopped by ", signal_name(result.stopped_by), "\n");
  } else {
    return text;
  }
  std::string first_error;
  if (result.first_failure)
    first_error = error_line(result.ranks[static_cast<std::size_t>(*result.first_failure)].last_errors);
  std::string others;
  for (const RankResult& rank : result.ranks) {
    if (result.first_failure != rank.rank) others += concat("    ", other_rank_text(rank, first_error), "\n");
  }
  if (!others.empty()) text += concat(result.first_failure ? "  secondary:\n" : "  ranks:\n", others);
  return text;
}

}  // namespace ddp::launch
