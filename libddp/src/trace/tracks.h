#pragma once

#include <cstdint>
#include <string_view>

#include "ddp/core/stream.h"

/// The threads and streams that spans are measured on. Numbers are given at first use, from 1; 0 stands for one
/// that found no room.
namespace ddp::trace {

/// True for the track of a stream, whose device is then written.
bool is_stream_track(std::uint16_t track, Device* device);

}  // namespace ddp::trace
