#include "common/trace_files.h"

#include <ddp/core/error.h>
#include <ddp/trace/recorder.h>

#include <fstream>
#include <vector>

namespace examples {

TraceFiles::TraceFiles(const std::string& folder, ddp::comm::ProcessGroup* group) : folder_(folder), group_(group) {
  if (folder.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  DDP_CHECK(!failure, ddp::IoError, "cannot make the folder '", folder, "': ", failure.message());
  // Known now rather than after hours of training.
  const std::string trial = path(group != nullptr ? group->rank() : 0, ".trial");
  const bool writable = std::ofstream(trial).is_open();
  std::filesystem::remove(trial, failure);
  DDP_CHECK(writable, ddp::IoError, "cannot write to the folder '", folder, "'");
  ddp::trace::set_sampling({.first = 0, .every = 1});
  ddp::trace::set_enabled(true);
}

std::string TraceFiles::path(int rank, const char* ending) const {
  return (folder_ / ddp::concat("rank-", rank, ending)).string();
}

void TraceFiles::write() const {
  if (folder_.empty()) return;
  ddp::trace::set_enabled(false);
  const int rank = group_ != nullptr ? group_->rank() : 0;
  ddp::trace::write_json_lines(path(rank, ".jsonl"), rank);
  ddp::trace::write_chrome_trace(path(rank, ".trace.json"), rank);
  if (group_ != nullptr) group_->barrier({.label = "traces written"});
  if (rank != 0) return;
  std::vector<std::string> parts;
  for (int other = 0; other < (group_ != nullptr ? group_->size() : 1); ++other) {
    if (const std::string part = path(other, ".trace.json"); std::filesystem::exists(part)) parts.push_back(part);
  }
  ddp::trace::merge_chrome_traces(parts, (folder_ / "trace.json").string());
}

}  // namespace examples
