// Reading a tensor's numbers on the host: item, to_vector, to_string, equal. None of it is fast; training
// does not use it in its steps.
#include <type_traits>

#include "core/observer.h"
#include "ddp/core/error.h"
#include "ddp/tensor/tensor.h"
#include "tensor/copy.h"
#include "tensor/dispatch.h"
#include "tensor/host_elements.h"

namespace ddp {
namespace {

Tensor on_host(const Tensor& tensor, const char* what, std::source_location where) {
  if (tensor.device().is_cpu()) return tensor;
  const core::BlockingScope scope(what, tensor.device(), where);
  Tensor host = raw::to(tensor, Device::cpu());
  current_stream(tensor.device()).synchronize(where);
  return host;
}

template <class T>
void read_elements(const Tensor& host, std::vector<T>& values) {
  raw::dispatch_all("to_vector", host.dtype(), [&]<class Element>(raw::TypeTag<Element>) {
    const auto* data = static_cast<const Element*>(host.data());
    raw::for_each_offset(host.sizes(), host.strides(),
                         [&](std::int64_t offset) { values.push_back(raw::convert<T>(data[offset])); });
  });
}

}  // namespace

template <class T>
std::vector<T> Tensor::to_vector(std::source_location where) const {
  const Tensor host = on_host(*this, "to_vector", where);
  std::vector<T> values;
  values.reserve(static_cast<std::size_t>(numel()));
  read_elements(host, values);
  return values;
}

template <class T>
T Tensor::item(std::source_location where) const {
  DDP_CHECK(numel() == 1, InvalidArgument, "item() needs one element, the tensor has sizes ", sizes());
  const Tensor host = on_host(*this, "item", where);
  T value{};
  raw::dispatch_all("item", host.dtype(), [&]<class Element>(raw::TypeTag<Element>) {
    value = raw::convert<T>(*static_cast<const Element*>(host.data()));
  });
  return value;
}

std::string Tensor::to_string() const {
  if (!defined()) return "Tensor(undefined)";
  constexpr std::size_t kShown = 200;
  std::string text = concat("Tensor(", sizes(), ", ", dtype(), ", ", device(), ", {");
  const Tensor host = on_host(*this, "to_string", std::source_location::current());
  raw::dispatch_all("to_string", dtype(), [&]<class Element>(raw::TypeTag<Element>) {
    // Every element in the digits that its own type has.
    using Shown = std::conditional_t<std::is_class_v<Element>, float,
                                     std::conditional_t<std::is_integral_v<Element>, std::int64_t, Element>>;
    std::vector<Shown> values;
    read_elements(host, values);
    for (std::size_t i = 0; i < values.size() && i < kShown; ++i) {
      text += concat(i > 0 ? ", " : "", values[i]);
    }
    if (values.size() > kShown) text += concat(", ... ", values.size() - kShown, " more");
  });
  return text + "})";
}

bool equal(const Tensor& a, const Tensor& b, std::source_location where) {
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return false;
  const Tensor host_a = on_host(a, "equal", where);
  const Tensor host_b = on_host(b, "equal", where);
  bool same = false;
  raw::dispatch_all("equal", a.dtype(), [&]<class Element>(raw::TypeTag<Element>) {
    // The 16-bit floats compare as float, so that NaN differs and -0 equals 0.
    using Compared = std::conditional_t<std::is_class_v<Element>, float, Element>;
    std::vector<Compared> values_a;
    std::vector<Compared> values_b;
    read_elements(host_a, values_a);
    read_elements(host_b, values_b);
    same = values_a == values_b;
  });
  return same;
}

#define DDP_INSTANTIATE(T)                                                  \
  template std::vector<T> Tensor::to_vector<T>(std::source_location) const; \
  template T Tensor::item<T>(std::source_location) const;
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
