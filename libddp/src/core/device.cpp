#include "ddp/core/device.h"

#include <algorithm>

#include "core/device_runtime.h"
#include "core/env.h"
#include "core/observer.h"
#include "ddp/core/error.h"

namespace ddp {

Device Device::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  DDP_CHECK(type == "cpu" || type == "cuda", InvalidArgument, "device is '", text,
            "'; allowed: cpu, cpu:N, cuda, cuda:N");
  Device device = type == "cpu" ? Device::cpu() : Device::cuda();
  if (colon != std::string_view::npos) {
    const std::string what = concat("device '", text, "': the number");
    device.index = static_cast<int>(core::parse_int(what, text.substr(colon + 1), 0, kMaxCpuDevices - 1));
  }
  return device;
}

std::string to_string(Device device) { return concat(device.is_cpu() ? "cpu:" : "cuda:", device.index); }

int device_count(DeviceType type) { return core::device_runtime(type).device_count(); }

void synchronize(Device device, std::source_location where) {
  core::check_device(device);
  if (device.is_cpu()) return;
  const core::BlockingScope scope("synchronize", device, where);
  core::device_runtime(device.type).synchronize_device(device);
}

namespace core {

void check_device(Device device) {
  const int count = device_count(device.type);
  DDP_CHECK(device.index >= 0 && device.index < count, InvalidArgument, "device ", device,
            " cannot be used: there are ", count, device.is_cpu() ? " CPU devices" : " CUDA devices here");
}

}  // namespace core
}  // namespace ddp
