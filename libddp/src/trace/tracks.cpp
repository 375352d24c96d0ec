#include "trace/tracks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ddp/core/error.h"
#include "ddp/trace/device_span.h"
#include "ddp/trace/recorder.h"

namespace ddp::trace {
namespace {

constexpr std::size_t kLongestName = 31;

struct Track {
  std::string name;
  std::optional<StreamView> stream;  // nothing: a host thread
};

struct Tracks {
  std::mutex mutex;
  std::vector<Track> all;  // number - 1
  int host_threads = 0;
};

/// Never destroyed: threads may record while the process ends.
Tracks& tracks() {
  static auto* made = new Tracks();
  return *made;
}

std::uint16_t add(Tracks& known, Track track) {
  if (known.all.size() >= std::numeric_limits<std::uint16_t>::max()) return 0;
  known.all.push_back(std::move(track));
  return static_cast<std::uint16_t>(known.all.size());
}

std::uint16_t find_or_add(Tracks& known, StreamView stream) {
  int of_device = 0;
  for (std::size_t i = 0; i < known.all.size(); ++i) {
    const auto& other = known.all[i].stream;
    if (!other || other->device() != stream.device()) continue;
    if (*other == stream) return static_cast<std::uint16_t>(i + 1);
    ++of_device;
  }
  return add(known, {.name = concat(stream.device(), " stream ", of_device), .stream = stream});
}

}  // namespace

std::uint16_t host_track() noexcept {
  static thread_local std::uint16_t track = 0;
  if (track != 0) return track;
  try {
    Tracks& known = tracks();
    const std::lock_guard lock(known.mutex);
    track = add(known, {.name = concat("host thread ", ++known.host_threads), .stream = std::nullopt});
  } catch (...) {  // no memory: the span goes without a track
  }
  return track;
}

std::uint16_t stream_track(StreamView stream) noexcept {
  struct Known {
    StreamView stream{Device::cpu()};
    std::uint16_t track = 0;
  };
  static thread_local std::array<Known, 4> recent{};  // a thread uses few streams
  static thread_local std::size_t oldest = 0;
  for (const Known& known : recent) {
    if (known.track != 0 && known.stream == stream) return known.track;
  }
  try {
    Tracks& known = tracks();
    const std::lock_guard lock(known.mutex);
    const std::uint16_t track = find_or_add(known, stream);
    recent[oldest] = {stream, track};
    oldest = (oldest + 1) % recent.size();
    return track;
  } catch (...) {
    return 0;
  }
}

void name_track(StreamView stream, std::string_view name) noexcept {
  try {
    Tracks& known = tracks();
    const std::lock_guard lock(known.mutex);
    const std::uint16_t track = find_or_add(known, stream);
    if (track != 0) known.all[track - 1U].name = name.substr(0, kLongestName);
  } catch (...) {  // no memory: the old name stays
  }
}

std::string track_name(std::uint16_t track) {
  Tracks& known = tracks();
  const std::lock_guard lock(known.mutex);
  if (track == 0 || track > known.all.size()) return concat("track ", track);
  return known.all[track - 1U].name;
}

bool is_stream_track(std::uint16_t track, Device* device) {
  Tracks& known = tracks();
  const std::lock_guard lock(known.mutex);
  if (track == 0 || track > known.all.size() || !known.all[track - 1U].stream) return false;
  *device = known.all[track - 1U].stream->device();
  return true;
}

}  // namespace ddp::trace
