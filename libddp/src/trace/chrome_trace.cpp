#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>

#include "ddp/core/error.h"
#include "ddp/trace/recorder.h"
#include "trace/output_file.h"
#include "trace/tracks.h"

// The format: "Trace Event Format", Google, 2016 (X complete events, M metadata, s and f flow events; times in
// microseconds).
namespace ddp::trace {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-3; }

std::string text(const Json& object) {
  // Labels come from the user and may not be valid UTF-8.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json metadata(const char* what, int rank, int track, Json arguments) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", std::move(arguments)}};
}

std::string title(const Span& span) {
  return span.label[0] != '\0' ? std::string(span.label) : std::string(name(span.kind));
}

/// Streams below the threads of the host, in the order of their numbers.
int sort_index(std::uint16_t track) {
  Device device;
  return is_stream_track(track, &device) ? 1000 + track : track;
}

// What a group of a CPU runs on its own threads is recorded by the thread that waits for it. On that thread's row it
// would lie across other spans, and viewers drop spans that overlap without nesting. So it has a row for each lane,
// with numbers behind those of all tracks.
constexpr int kFirstLaneRow = 1 << 16;

int row_of(const Span& span) {
  Device device;
  if (span.kind != SpanKind::collective || is_stream_track(span.track, &device)) return span.track;
  return kFirstLaneRow + std::max(span.lane, 0);
}

class Writer {
 public:
  explicit Writer(const std::string& path) : file_(path) {
    file_.put("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  }
  void event(const Json& object) {
    if (!first_) file_.put(",\n");
    first_ = false;
    file_.put(text(object));
  }
  void commit() {
    file_.put("\n]}\n");
    file_.commit();
  }

 private:
  OutputFile file_;
  bool first_ = true;
};

void put_names(Writer& writer, const std::vector<Span>& all, int rank) {
  writer.event(metadata("process_name", rank, 0, {{"name", concat("rank ", rank)}}));
  writer.event(metadata("process_sort_index", rank, 0, {{"sort_index", rank}}));
  std::set<std::uint16_t> tracks;
  std::set<int> lanes;
  for (const Span& span : all) {
    if (const int row = row_of(span); row >= kFirstLaneRow) {
      lanes.insert(row);
    } else {
      tracks.insert(span.track);
    }
  }
  for (const std::uint16_t track : tracks) {
    writer.event(metadata("thread_name", rank, track, {{"name", track_name(track)}}));
    writer.event(metadata("thread_sort_index", rank, track, {{"sort_index", sort_index(track)}}));
  }
  for (const int row : lanes) {
    writer.event(metadata("thread_name", rank, row, {{"name", concat("communication lane ", row - kFirstLaneRow)}}));
    writer.event(metadata("thread_sort_index", rank, row, {{"sort_index", 1000 + row}}));
  }
}

void put_span(Writer& writer, const Span& span, int rank) {
  Json object = {{"name", title(span)}, {"cat", name(span.kind)}, {"ph", span.end_ns > span.begin_ns ? "X" : "i"},
                 {"pid", rank},         {"tid", row_of(span)},    {"ts", microseconds(span.begin_ns)}};
  if (span.end_ns > span.begin_ns) {
    object["dur"] = microseconds(span.end_ns - span.begin_ns);
  } else {
    object["s"] = "t";  // a mark on its track
  }
  object["args"] = {{"step", span.step}, {"lane", span.lane}, {"kind", name(span.kind)}};
  writer.event(object);
}

/// From each bucket's mark to its collective: both carry the bucket's label and step.
void put_arrows(Writer& writer, const std::vector<Span>& all, int rank) {
  std::map<std::tuple<std::int64_t, std::string>, const Span*> ready;
  for (const Span& span : all) {
    if (span.kind == SpanKind::bucket_ready) ready[{span.step, span.label}] = &span;
  }
  std::int64_t number = 0;
  for (const Span& span : all) {
    if (span.kind != SpanKind::collective) continue;
    const auto from = ready.find({span.step, span.label});
    if (from == ready.end()) continue;
    const std::string id = concat(rank, ".", ++number);
    const Json common = {{"name", "bucket"}, {"cat", "bucket"}, {"pid", rank}, {"id", id}};
    Json start = common;
    start.update({{"ph", "s"}, {"tid", from->second->track}, {"ts", microseconds(from->second->begin_ns)}});
    writer.event(start);
    Json finish = common;
    finish.update({{"ph", "f"}, {"bp", "e"}, {"tid", row_of(span)}, {"ts", microseconds(span.begin_ns)}});
    writer.event(finish);
  }
}

}  // namespace

void write_chrome_trace(const std::string& path, int rank) {
  flush();
  const std::vector<Span> all = spans();
  Writer writer(path);
  put_names(writer, all, rank);
  for (const Span& span : all) put_span(writer, span, rank);
  put_arrows(writer, all, rank);
  for (const StepRecord& record : steps()) {
    writer.event({{"name", concat("step ", record.step)},
                  {"cat", "step"},
                  {"ph", "X"},
                  {"pid", rank},
                  {"tid", 0},
                  {"ts", microseconds(record.begin_ns)},
                  {"dur", microseconds(record.end_ns - record.begin_ns)},
                  {"args",
                   {{"exposed_comm_ms", static_cast<double>(record[SpanKind::exposed]) * 1e-6},
                    {"kernel_launches", record.counters[Counter::kernel_launches]},
                    {"blocking_calls", record.counters[Counter::blocking_calls]}}}});
  }
  writer.event(metadata("thread_name", rank, 0, {{"name", "steps"}}));
  writer.event(metadata("thread_sort_index", rank, 0, {{"sort_index", -1}}));
  writer.commit();
}

void merge_chrome_traces(const std::vector<std::string>& paths, const std::string& merged) {
  Writer writer(merged);
  for (const std::string& path : paths) {
    std::ifstream file(path);
    DDP_CHECK(file.is_open(), IoError, "cannot read the trace file '", path, "'");
    const Json object = Json::parse(file, nullptr, false);
    DDP_CHECK(object.is_object() && object.contains("traceEvents") && object["traceEvents"].is_array(), InvalidArgument,
              "'", path, "' is not a trace in Chrome's format (an object with an array traceEvents)");
    for (const Json& event : object["traceEvents"]) writer.event(event);
  }
  writer.commit();
}

}  // namespace ddp::trace
