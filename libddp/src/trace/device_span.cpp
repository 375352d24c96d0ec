#include "ddp/trace/device_span.h"

namespace ddp::trace {

struct DeviceSpan::Open {};

DeviceSpan::DeviceSpan(SpanKind /*kind*/, StreamView /*stream*/, std::string_view /*label*/,
                       std::int32_t /*lane*/) noexcept {}
DeviceSpan::DeviceSpan(DeviceSpan&& other) noexcept = default;
DeviceSpan& DeviceSpan::operator=(DeviceSpan&& other) noexcept = default;
DeviceSpan::~DeviceSpan() = default;
void DeviceSpan::end(StreamView /*stream*/) noexcept { open_.reset(); }

}  // namespace ddp::trace
