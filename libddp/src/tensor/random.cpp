#include "ddp/tensor/random.h"

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "core/device_runtime.h"
#include "tensor/backend/random_backend.h"
#include "tensor/checks.h"
#include "tensor/dispatch.h"

namespace ddp {

namespace raw {

namespace {

void check_target(std::string_view operation, const Tensor& x) {
  check_defined(operation, "tensor", x);
  DDP_CHECK(x.is_contiguous(), InvalidArgument, operation, ": tensor of sizes ", x.sizes(), " and strides ",
            x.strides(), " is not row-major");
}

// The largest number of type T below `high`.
template <class T>
double last_below(double high) {
  if constexpr (sizeof(T) >= 4) {
    T value = static_cast<T>(high);
    if (static_cast<double>(value) >= high) value = std::nextafter(value, -std::numeric_limits<T>::infinity());
    return static_cast<double>(value);
  } else {
    T value(static_cast<float>(high));
    while (static_cast<double>(static_cast<float>(value)) >= high) {
      // One step towards minus infinity: magnitudes of sign-magnitude numbers are ordered by their bits.
      if ((value.bits & 0x7fffU) == 0) {
        value.bits = 0x8001U;
      } else {
        value.bits = static_cast<std::uint16_t>((value.bits & 0x8000U) != 0 ? value.bits + 1 : value.bits - 1);
      }
    }
    return static_cast<double>(static_cast<float>(value));
  }
}

RandomState draw(Generator& generator, std::int64_t numbers) {
  return {generator.seed(), generator.advance(static_cast<std::uint64_t>(numbers))};
}

void check_probability(std::string_view operation, double p) {
  DDP_CHECK(p >= 0 && p <= 1, InvalidArgument, operation, ": probability ", p, "; allowed: 0 to 1");
}
double dropout_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

}  // namespace

void uniform_(const Tensor& x, double low, double high, Generator& generator) {
  check_target("uniform_", x);
  check_floating("uniform_", x);
  DDP_CHECK(std::isfinite(high - low) && low <= high, InvalidArgument, "uniform_: range [", low, ", ", high,
            "); allowed: finite, low at most high");
  if (x.numel() == 0) return;
  double largest = low;
  if (low < high) {
    dispatch_floating("uniform_", x.dtype(), [&]<class T>(TypeTag<T>) { largest = last_below<T>(high); });
  }
  const std::int64_t numbers = x.dtype() == DType::float64 ? 2 * x.numel() : x.numel();
  random_backend(x.device()).uniform(x, low, high, largest, draw(generator, numbers));
}

void normal_(const Tensor& x, double mean, double deviation, Generator& generator) {
  check_target("normal_", x);
  check_floating("normal_", x);
  DDP_CHECK(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0, InvalidArgument, "normal_: mean ", mean,
            ", deviation ", deviation, "; allowed: finite, deviation 0 or more");
  if (x.numel() != 0) random_backend(x.device()).normal(x, mean, deviation, draw(generator, x.numel()));
}

void randint_(const Tensor& x, std::int64_t low, std::int64_t high, Generator& generator) {
  check_target("randint_", x);
  DDP_CHECK(low < high, InvalidArgument, "randint_: range [", low, ", ", high, "); allowed: low below high");
  double least = 0;
  double most = 1;
  switch (x.dtype()) {  // whole numbers that the dtype holds exactly
    case DType::boolean:
      break;
    case DType::uint8:
      most = 255;
      break;
    case DType::int32:
      least = -0x1p31;
      most = 0x1p31 - 1;
      break;
    case DType::int64:
      least = -0x1p63;
      most = 0x1p63;
      break;
    case DType::float32:
      least = -(most = 0x1p24);
      break;
    case DType::float64:
      least = -(most = 0x1p53);
      break;
    case DType::float16:
      least = -(most = 0x1p11);
      break;
    case DType::bfloat16:
      least = -(most = 0x1p8);
      break;
  }
  DDP_CHECK(static_cast<double>(low) >= least && static_cast<double>(high - 1) <= most, InvalidArgument,
            "randint_: range [", low, ", ", high, ") does not fit dtype ", x.dtype());
  if (x.numel() == 0) return;
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  random_backend(x.device()).randint(x, low, range, draw(generator, 2 * x.numel()));
}

DropoutResult dropout(const Tensor& x, double p, Generator& generator) {
  check_floating("dropout", x);
  check_probability("dropout", p);
  DropoutResult dropped{empty(x.sizes(), x.options()), empty(x.sizes(), {DType::uint8, x.device()})};
  if (x.numel() == 0) return dropped;
  const auto threshold = static_cast<std::uint64_t>(std::llround(p * 0x1p32));
  random_backend(x.device())
      .dropout(x, threshold, dropout_scale(p), draw(generator, x.numel()), dropped.y, dropped.mask);
  return dropped;
}

Tensor dropout_grad(const Tensor& grad, const Tensor& mask, double p) {
  check_floating("dropout_grad", grad);
  check_same_device("dropout_grad", grad, mask);
  check_sizes("dropout_grad", "mask", mask, grad.sizes());
  DDP_CHECK(mask.dtype() == DType::uint8, InvalidArgument, "dropout_grad: mask has dtype ", mask.dtype(),
            "; allowed: uint8");
  check_probability("dropout_grad", p);
  Tensor out = empty(grad.sizes(), grad.options());
  if (out.numel() != 0) random_backend(grad.device()).dropout_grad(grad, mask, dropout_scale(p), out);
  return out;
}

}  // namespace raw

namespace {

struct Generators {
  std::array<Generator, kMaxCpuDevices> cpu;
  std::array<Generator, kMaxCpuDevices> cuda;
};
Generators& generators() {
  static Generators all;
  return all;
}

Generator& pick(Generator* generator, Device device) {
  return generator != nullptr ? *generator : default_generator(device);
}

}  // namespace

Generator& default_generator(Device device) {
  DDP_CHECK(device.index >= 0 && device.index < kMaxCpuDevices, InvalidArgument, "default_generator of ", device,
            "; allowed: index 0 to ", kMaxCpuDevices - 1);
  auto& of_type = device.is_cuda() ? generators().cuda : generators().cpu;
  return of_type[static_cast<std::size_t>(device.index)];
}

void manual_seed(std::uint64_t seed) {
  for (Generator& generator : generators().cpu) generator.set_state(seed, 0);
  for (Generator& generator : generators().cuda) generator.set_state(seed, 0);
}

Tensor rand(const Dims& sizes, const TensorOptions& options, Generator* generator) {
  Tensor x = empty(sizes, options);
  raw::uniform_(x, 0, 1, pick(generator, options.device));
  return x;
}

Tensor randn(const Dims& sizes, const TensorOptions& options, Generator* generator) {
  Tensor x = empty(sizes, options);
  raw::normal_(x, 0, 1, pick(generator, options.device));
  return x;
}

Tensor randint(std::int64_t low, std::int64_t high, const Dims& sizes, const TensorOptions& options,
               Generator* generator) {
  Tensor x = empty(sizes, options);
  raw::randint_(x, low, high, pick(generator, options.device));
  return x;
}

}  // namespace ddp
