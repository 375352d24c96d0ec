#pragma once

#include <cstdint>

#include "ddp/trace/recorder.h"

/// What the recorder's parts do for each other.
namespace ddp::trace {

/// Puts a finished span into the ring and its time into the record of its step; `device` says which clock
/// measured it. Nothing before spans were first switched on.
void keep(const Span& span, bool device) noexcept;

/// Copies as much of a label as a span holds, never half a UTF-8 character.
void set_label(Span& span, std::string_view label) noexcept;

/// Takes in the device spans whose end has been passed. Does not block.
void collect_device_spans() noexcept;
/// The number of device spans that have ended in their stream and are not taken in yet.
std::int64_t pending_device_spans() noexcept;
/// Forgets them.
void drop_device_spans() noexcept;

}  // namespace ddp::trace
