#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

/// Where a tensor lives and where its operations run.
namespace ddp {

enum class DeviceType : std::uint8_t { cpu, cuda };

/// A device. CPU devices can be several: `cpu:0`, `cpu:1`, ... share the memory, and each has its own
/// pool of threads, so that several replicas can work side by side in one process.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  static constexpr Device cpu(int index = 0) { return {DeviceType::cpu, index}; }
  static constexpr Device cuda(int index = 0) { return {DeviceType::cuda, index}; }
  /// Parses "cpu", "cpu:1", "cuda", "cuda:0". Throws InvalidArgument that quotes the text.
  static Device parse(std::string_view text);

  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// "cpu:0", "cuda:1".
std::string to_string(Device device);

/// Highest number of CPU devices a process may use.
inline constexpr int kMaxCpuDevices = 64;

/// Devices of that type which can be used now: kMaxCpuDevices for CPUs; for CUDA the number of GPUs, 0
/// in a build without CUDA and on a machine without driver or GPU.
int device_count(DeviceType type);

/// Threads that an operation on this CPU device may use. The default is OMP_NUM_THREADS where set, else
/// the cores this process may use divided by LOCAL_WORLD_SIZE, at least 1.
int num_threads(Device device = Device::cpu());
/// Sets it. Not thread safe against operations running on that device. Throws InvalidArgument for n < 1.
void set_num_threads(int n, Device device = Device::cpu());

/// Blocks the host until everything queued on the device is done. A no-op for CPU devices.
void synchronize(Device device, std::source_location where = std::source_location::current());

/// Bytes handed out by the device's caching allocator. Exact, whatever the number of threads.
struct MemoryStats {
  std::int64_t in_use = 0;              ///< bytes of live blocks
  std::int64_t peak = 0;                ///< highest `in_use` since the last reset_peak_memory
  std::int64_t reserved = 0;            ///< bytes held from the system, in use or cached
  std::int64_t allocations = 0;         ///< blocks handed out so far
  std::int64_t system_allocations = 0;  ///< of them, requests that had to go to the system
};
/// Thread safe; never blocks on the device.
MemoryStats memory_stats(Device device);
/// Makes `peak` start again from the present `in_use`.
void reset_peak_memory(Device device);
/// Returns cached, unused blocks to the system. Blocks the host on CUDA until the device has done all that is queued,
/// as freeing memory does there; a collective that is stuck holds it up until its group gives up.
void release_cached_memory(Device device, std::source_location where = std::source_location::current());

/// The same for page-locked host memory (TensorOptions::pinned), which all devices share.
MemoryStats pinned_memory_stats();
void release_cached_pinned_memory(std::source_location where = std::source_location::current());

}  // namespace ddp
