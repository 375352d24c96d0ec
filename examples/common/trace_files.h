#pragma once

#include <ddp/comm/process_group.h>

#include <filesystem>
#include <string>

namespace examples {

/// --trace: keeps the spans of every step from construction on, and writes them at the end. Does nothing without a
/// folder.
class TraceFiles {
 public:
  /// `group` is null without other ranks. Makes the folder; throws ddp::IoError naming it when it cannot, or cannot
  /// write there.
  TraceFiles(const std::string& folder, ddp::comm::ProcessGroup* group);
  /// FOLDER/rank-R.jsonl and rank-R.trace.json on each rank; then rank 0 joins the traces into FOLDER/trace.json.
  /// Collective over the group; with ranks on several hosts, each host's folder gets its own ranks' files, and
  /// rank 0 joins what it finds.
  void write() const;

 private:
  std::string path(int rank, const char* ending) const;
  std::filesystem::path folder_;
  ddp::comm::ProcessGroup* group_;
};

}  // namespace examples
