#include "tensor/copy.h"

#include <algorithm>
#include <cmath>

#include "core/device_runtime.h"
#include "core/observer.h"
#include "core/thread_state.h"
#include "tensor/backend/copy_backend.h"
#include "tensor/checks.h"
#include "tensor/tensor_impl.h"

namespace ddp::raw {

namespace {

void report_copy(const Tensor& destination, const Tensor& source) {
  const core::Observer* observer = core::observer();
  if (observer != nullptr && observer->copy != nullptr) {
    observer->copy(source.device(), destination.device(), destination.nbytes());
  }
}

// CPU devices share their memory; everything else is reached through the device runtime.
bool same_memory(Device a, Device b) { return a == b || (a.is_cpu() && b.is_cpu()); }

// Same sizes, different memories. Bytes travel row-major and in the destination's dtype, so conversion and
// strides are dealt with on one side or the other.
void copy_across(const Tensor& destination, const Tensor& source, std::source_location where) {
  const bool pinned = source.impl()->storage()->is_pinned();
  const core::PinHostMemory pin(pinned);  // what is packed out of pinned memory shall not block either
  const Tensor packed = contiguous(to(source, destination.dtype()));
  const bool direct = destination.is_contiguous();
  const Tensor landing = direct ? destination : empty(destination.sizes(), destination.options());
  const StreamView stream = current_stream(destination.device().is_cuda() ? destination.device() : source.device());
  if (source.device().is_cuda()) stream.wait_for(current_stream(source.device()));
  const bool in_flight = core::device_runtime(DeviceType::cuda)
                             .copy(landing.data(), landing.device(), packed.data(), packed.device(),
                                   static_cast<std::size_t>(packed.nbytes()), stream, where);
  if (in_flight) {
    packed.used_on(stream);
    landing.used_on(stream);
    // What is queued for the source from here on, in place perhaps, must not change it under the copy.
    if (source.device().is_cuda()) current_stream(source.device()).wait_for(stream);
  }
  if (direct) return;
  if (in_flight && landing.device().is_cpu()) stream.synchronize(where);
  copy_backend(destination.device()).copy(destination, landing);
}

}  // namespace

void fill_(const Tensor& x, double value) {
  check_defined("fill_", "tensor", x);
  DDP_CHECK(is_floating_point(x.dtype()) || (std::isfinite(value) && value == std::trunc(value)), InvalidArgument,
            "fill_: value ", value, " with dtype ", x.dtype(), "; allowed: whole numbers");
  check_writable("fill_", x);
  if (x.numel() != 0) copy_backend(x.device()).fill(x, value);
}

void copy_(const Tensor& destination, const Tensor& source, std::source_location where) {
  check_defined("copy_", "destination", destination);
  check_defined("copy_", "source", source);
  check_writable("copy_", destination);
  Tensor from = broadcast_to("copy_", source, destination.sizes());
  if (destination.numel() == 0) return;
  report_copy(destination, from);
  if (!same_memory(destination.device(), from.device())) return copy_across(destination, from, where);
  const Overlap meeting = overlap(destination, from);
  if (meeting == Overlap::same) return;
  if (meeting == Overlap::maybe) from = clone(from);  // writing must not change what is still to be read
  copy_backend(destination.device()).copy(destination, from);
}

Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", "tensor", x);
  return x.is_contiguous() ? x : clone(x);
}

Tensor clone(const Tensor& x) {
  check_defined("clone", "tensor", x);
  Tensor out = empty(x.sizes(), x.options());
  if (x.numel() != 0) {
    report_copy(out, x);
    copy_backend(x.device()).copy(out, x);
  }
  return out;
}

Tensor to(const Tensor& x, DType dtype) {
  check_defined("to", "tensor", x);
  if (x.dtype() == dtype) return x;
  Tensor out = empty(x.sizes(), {dtype, x.device()});
  if (x.numel() != 0) {
    report_copy(out, x);
    copy_backend(x.device()).copy(out, x);
  }
  return out;
}

Tensor to(const Tensor& x, Device device, std::source_location where) {
  check_defined("to", "tensor", x);
  if (x.device() == device) return x;
  Tensor out = empty(x.sizes(), {x.dtype(), device});
  copy_(out, x, where);
  return out;
}

Tensor cat(const std::vector<Tensor>& parts, std::int64_t dim) {
  DDP_CHECK(!parts.empty(), InvalidArgument, "cat: no tensors were given; allowed: 1 or more");
  check_defined("cat", "tensor 0", parts[0]);
  const std::size_t at = wrap_dim(dim, parts[0].sizes().size());
  Dims sizes = parts[0].sizes();
  sizes[at] = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_same_kind("cat", parts[0], parts[i]);
    Dims expected = parts[0].sizes();
    const bool same_rank = parts[i].sizes().size() == expected.size();
    if (same_rank) expected[at] = parts[i].sizes()[at];
    DDP_CHECK(same_rank && parts[i].sizes() == expected, InvalidArgument, "cat: tensor ", i, " has sizes ",
              parts[i].sizes(), ", tensor 0 has ", parts[0].sizes(), "; only dimension ", at, " may differ");
    sizes[at] += parts[i].sizes()[at];
  }
  Tensor out = empty(sizes, parts[0].options());
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    const std::int64_t end = begin + part.sizes()[at];
    if (part.numel() != 0) copy_(slice(out, static_cast<std::int64_t>(at), begin, end, 1), part);
    begin = end;
  }
  return out;
}

Tensor index_rows(const Tensor& x, const Tensor& index) {
  check_same_device("index_rows", x, index);
  DDP_CHECK(x.dim() >= 1, InvalidArgument, "index_rows: a tensor without dimensions has no rows");
  DDP_CHECK(index.dtype() == DType::int64 && index.dim() == 1, InvalidArgument, "index_rows: index has dtype ",
            index.dtype(), " and sizes ", index.sizes(), "; allowed: int64 with one dimension");
  Dims sizes = x.sizes();
  sizes[0] = index.numel();
  Tensor out = empty(sizes, x.options());
  if (index.numel() != 0) copy_backend(x.device()).index_rows(contiguous(x), index, out);
  return out;
}

}  // namespace ddp::raw
