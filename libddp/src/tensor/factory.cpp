#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/device_runtime.h"
#include "core/thread_state.h"
#include "ddp/core/error.h"
#include "ddp/tensor/tensor.h"
#include "tensor/copy.h"
#include "tensor/dispatch.h"
#include "tensor/host_elements.h"
#include "tensor/sizes.h"
#include "tensor/tensor_impl.h"

namespace ddp {
namespace {

void check_sizes(const Dims& sizes) {
  for (const std::int64_t size : sizes) {
    DDP_CHECK(size >= 0, InvalidArgument, "sizes ", sizes, " hold the negative number ", size);
  }
}

/// Bytes of so many elements. All arithmetic on them is signed.
std::size_t bytes_of(std::int64_t elements, const Dims& sizes, DType dtype) {
  std::int64_t bytes = 0;
  DDP_CHECK(!__builtin_mul_overflow(elements, static_cast<std::int64_t>(size_of(dtype)), &bytes), InvalidArgument,
            "sizes ", sizes, " of ", dtype, " have more bytes than 63 bits can count");
  return static_cast<std::size_t>(bytes);
}

std::string describe(const core::PointerInfo& info) {
  switch (info.kind) {
    case core::PointerKind::pinned:
      return "pinned host memory";
    case core::PointerKind::device:
      return concat("memory of ", Device::cuda(info.device));
    case core::PointerKind::managed:
      return "managed memory";
    default:
      return "pageable host memory";
  }
}

void check_memory(const void* data, const TensorOptions& options) {
  core::DeviceRuntime& cuda = core::cuda_runtime();
  if (options.device.is_cuda()) {
    DDP_CHECK(!options.pinned, InvalidArgument, "a pinned tensor is in CPU memory, and not on ", options.device);
    const core::PointerInfo found = cuda.describe(data);
    const bool there = found.kind == core::PointerKind::managed ||
                       (found.kind == core::PointerKind::device && found.device == options.device.index);
    DDP_CHECK(there, InvalidArgument, "from_blob: the address is in ", describe(found), ", given as memory of ",
              options.device);
    return;
  }
  // Without a GPU pinned memory is ordinary memory. A device that has not been started owns no memory.
  if (!options.pinned && !cuda.started()) return;
  if (device_count(DeviceType::cuda) == 0) return;
  const core::PointerInfo found = cuda.describe(data);
  DDP_CHECK(found.kind != core::PointerKind::device, InvalidArgument, "from_blob: the address is in ", describe(found),
            ", given as memory of ", options.device);
  DDP_CHECK(!options.pinned || found.kind == core::PointerKind::pinned, InvalidArgument,
            "from_blob: the address is in ", describe(found), ", given as pinned host memory");
}

}  // namespace

Tensor empty(const Dims& sizes, const TensorOptions& options) {
  check_sizes(sizes);
  DDP_CHECK(!options.pinned || options.device.is_cpu(), InvalidArgument,
            "a pinned tensor is in CPU memory, and not on ", options.device);
  const std::int64_t numel = raw::checked_numel(sizes);
  const std::size_t bytes = bytes_of(numel, sizes, options.dtype);
  const bool pinned = options.pinned || core::t_pin_host_memory;
  return Tensor(
      make_intrusive<TensorImpl>(make_intrusive<Storage>(bytes, options.device, pinned), sizes, numel, options.dtype));
}

Tensor full(const Dims& sizes, double value, const TensorOptions& options) {
  Tensor result = empty(sizes, options);
  raw::fill_(result, value);
  return result;
}

Tensor zeros(const Dims& sizes, const TensorOptions& options) { return full(sizes, 0, options); }
Tensor ones(const Dims& sizes, const TensorOptions& options) { return full(sizes, 1, options); }

Tensor arange(std::int64_t n, const TensorOptions& options) {
  DDP_CHECK(n >= 0, InvalidArgument, "arange of ", n, " numbers; allowed: 0 or more");
  const Tensor host = empty({n}, {options.dtype, Device::cpu()});
  raw::dispatch_all("arange", options.dtype, [&]<class Element>(raw::TypeTag<Element>) {
    auto* data = static_cast<Element*>(host.data());
    for (std::int64_t i = 0; i < n; ++i) data[i] = raw::convert<Element>(i);
  });
  return raw::to(host, options.device);
}

template <class T>
Tensor tensor(std::span<const T> values, const Dims& sizes, Device device) {
  DDP_CHECK(static_cast<std::int64_t>(values.size()) == raw::checked_numel(sizes), InvalidArgument, values.size(),
            " values do not fill sizes ", sizes);
  Tensor host = empty(sizes, {dtype_of<T>, Device::cpu()});
  if (!values.empty()) std::memcpy(host.data(), values.data(), values.size_bytes());
  if (device == Device::cpu()) return host;
  Tensor result = raw::to(host, device);
  if (device.is_cuda()) current_stream(device).synchronize();  // `host` is gone after this
  return result;
}

Tensor from_blob(void* data, const Dims& sizes, const TensorOptions& options, const Dims& strides,
                 std::function<void()> release) {
  check_sizes(sizes);
  core::check_device(options.device);
  if (data != nullptr) check_memory(data, options);
  DDP_CHECK(strides.empty() || strides.size() == sizes.size(), InvalidArgument, "strides ", strides,
            " do not match sizes ", sizes);
  DDP_CHECK(data != nullptr || raw::checked_numel(sizes) == 0, InvalidArgument,
            "from_blob of a null pointer with sizes ", sizes);
  const Dims used = strides.empty() ? contiguous_strides(sizes) : strides;
  std::int64_t extent = raw::checked_numel(sizes) == 0 ? 0 : 1;
  for (std::size_t i = 0; i < sizes.size() && extent > 0; ++i) {
    DDP_CHECK(used[i] >= 0, InvalidArgument, "strides ", used, " hold a negative number");
    std::int64_t reach = 0;
    DDP_CHECK(!__builtin_mul_overflow(sizes[i] - 1, used[i], &reach) && !__builtin_add_overflow(extent, reach, &extent),
              InvalidArgument, "sizes ", sizes, " with strides ", used, " reach further than 64 bits can count");
  }
  const std::size_t bytes = bytes_of(extent, sizes, options.dtype);
  return Tensor(make_intrusive<TensorImpl>(
      make_intrusive<Storage>(data, bytes, options.device, std::move(release), options.pinned), sizes, used, 0,
      options.dtype));
}

Tensor from_blob(void* data, const Dims& sizes, const TensorOptions& options, StreamView stream, const Dims& strides,
                 std::function<void()> release) {
  current_stream(options.device).wait_for(stream);
  return from_blob(data, sizes, options, strides, std::move(release));
}

#define DDP_INSTANTIATE(T) template Tensor tensor<T>(std::span<const T>, const Dims&, Device);
DDP_INSTANTIATE(float)
DDP_INSTANTIATE(double)
DDP_INSTANTIATE(Half)
DDP_INSTANTIATE(BFloat16)
DDP_INSTANTIATE(std::int32_t)
DDP_INSTANTIATE(std::int64_t)
DDP_INSTANTIATE(std::uint8_t)
DDP_INSTANTIATE(bool)
#undef DDP_INSTANTIATE

}  // namespace ddp
