#include <nlohmann/json.hpp>
#include <string>

#include "ddp/core/error.h"
#include "ddp/trace/recorder.h"
#include "trace/output_file.h"

namespace ddp::trace {
namespace {

using Json = nlohmann::ordered_json;

std::string line(const Json& object) {
  // Labels come from the user and may not be valid UTF-8.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

Json to_json(const Span& span, int rank) {
  return {{"event", "span"},
          {"rank", rank},
          {"kind", name(span.kind)},
          {"label", span.label},
          {"track", track_name(span.track)},
          {"lane", span.lane},
          {"step", span.step},
          {"begin_ns", span.begin_ns},
          {"end_ns", span.end_ns}};
}

Json counters_to_json(int rank) {
  Json object = {{"event", "counters"}, {"rank", rank}, {"steps", current_step()}};
  const CounterSnapshot values = snapshot();
  for (int i = 0; i < static_cast<int>(Counter::count_); ++i) {
    const auto counter = static_cast<Counter>(i);
    object[std::string(name(counter))] = values[counter];
  }
  return object;
}

Json to_json(const StepRecord& record, int rank) {
  Json object = {{"event", "step"},         {"rank", rank},
                 {"step", record.step},     {"begin_ns", record.begin_ns},
                 {"end_ns", record.end_ns}, {"sampled", record.sampled}};
  for (int i = 0; i < static_cast<int>(Counter::count_); ++i) {
    const auto counter = static_cast<Counter>(i);
    object[std::string(name(counter))] = record.counters[counter];
  }
  if (!record.sampled) return object;
  for (int i = 0; i < static_cast<int>(SpanKind::count_); ++i) {
    const auto kind = static_cast<SpanKind>(i);
    if (record[kind] != 0) object[concat(name(kind), "_ns")] = record[kind];
  }
  return object;
}

}  // namespace

void write_json_lines(const std::string& path, int rank) {
  flush();
  OutputFile file(path);
  for (const Span& span : spans()) file.put(line(to_json(span, rank)));
  for (const StepRecord& record : steps()) file.put(line(to_json(record, rank)));
  file.put(line(counters_to_json(rank)));
  file.commit();
}

}  // namespace ddp::trace
