#include <algorithm>
#include <cmath>

#include "core/thread_pool.h"
#include "tensor/backend/norm_backend.h"
#include "tensor/cpu/element.h"
#include "tensor/cpu/lane_sum.h"
#include "tensor/cpu/strided_loop.h"

namespace ddp::raw {
namespace {

using cpu::lane_sum;
using cpu::load;
using cpu::store;

// x as [images, channels, area].
struct Channels {
  explicit Channels(const Tensor& x) : images(x.size(0)), channels(x.size(1)), area(x.numel() / (images * channels)) {}
  std::int64_t images, channels, area;
  double count() const { return static_cast<double>(images * area); }
  std::int64_t grain() const { return std::max<std::int64_t>(1, cpu::kGrain / (images * area)); }

  // Sum of f(element index) over a channel. An area of one is summed along the images.
  template <class F>
  double sum(std::int64_t channel, F&& f) const {
    if (area == 1) return lane_sum(images, [&](std::int64_t i) { return f(i * channels + channel); });
    double total = 0;
    for (std::int64_t i = 0; i < images; ++i) {
      const std::int64_t first = (i * channels + channel) * area;
      total += lane_sum(area, [&](std::int64_t j) { return f(first + j); });
    }
    return total;
  }
  // f(element index) for each element of a channel.
  template <class F>
  void each(std::int64_t channel, F&& f) const {
    for (std::int64_t i = 0; i < images; ++i) {
      const std::int64_t first = (i * channels + channel) * area;
      DDP_INDEPENDENT_ITERATIONS
      for (std::int64_t j = first; j < first + area; ++j) f(j);
    }
  }
  template <class F>
  void parallel(Device device, F&& f) const {
    core::parallel_for(device, channels, grain(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) f(c);
    });
  }
};

template <class S>
const S* optional(const Tensor& x) {
  return x.defined() ? x.data_ptr<S>() : nullptr;
}

template <class T>
void statistics(const Tensor& x, const Tensor& mean, const Tensor& variance) {
  using S = ComputeType<T>;
  const Channels shape(x);
  const T* from = x.data_ptr<T>();
  S* means = mean.data_ptr<S>();
  S* variances = variance.data_ptr<S>();
  shape.parallel(x.device(), [&](std::int64_t c) {
    const double average = shape.sum(c, [&](std::int64_t i) { return load(from[i]); }) / shape.count();
    const S center = static_cast<S>(average);
    // Around a rounded centre, corrected for the distance to the mean: the second pass stays in S.
    const double squares = shape.sum(c, [&](std::int64_t i) {
      const S d = load(from[i]) - center;
      return d * d;
    });
    const double shift = average - static_cast<double>(center);
    means[c] = center;
    variances[c] = static_cast<S>(std::max(0.0, squares / shape.count() - shift * shift));
  });
}

template <class T>
void normalize(const Tensor& x, const Tensor& mean, const Tensor& invstd, const Tensor& weight, const Tensor& bias,
               const Tensor& y) {
  using S = ComputeType<T>;
  const Channels shape(x);
  const T* from = x.data_ptr<T>();
  T* to = y.data_ptr<T>();
  const S* means = mean.data_ptr<S>();
  const S* inverses = invstd.data_ptr<S>();
  const S* weights = optional<S>(weight);
  const S* biases = optional<S>(bias);
  shape.parallel(x.device(), [&](std::int64_t c) {
    const S center = means[c];
    const S scale = inverses[c] * (weights ? weights[c] : S{1});
    const S add = biases ? biases[c] : S{};
    shape.each(c, [&](std::int64_t i) { to[i] = store<T>((load(from[i]) - center) * scale + add); });
  });
}

template <class T>
void batch_gradient(const Tensor& grad, const Tensor& x, const Tensor& mean, const Tensor& invstd, const Tensor& weight,
                    bool training, const Tensor& x_grad, const Tensor& weight_grad, const Tensor& bias_grad) {
  using S = ComputeType<T>;
  const Channels shape(x);
  const T* g = grad.data_ptr<T>();
  const T* from = x.data_ptr<T>();
  T* to = x_grad.data_ptr<T>();
  const S* means = mean.data_ptr<S>();
  const S* inverses = invstd.data_ptr<S>();
  const S* weights = optional<S>(weight);
  S* weight_sums = weight_grad.data_ptr<S>();
  S* bias_sums = bias_grad.data_ptr<S>();
  shape.parallel(x.device(), [&](std::int64_t c) {
    const S center = means[c];
    const S inverse = inverses[c];
    const double sum = shape.sum(c, [&](std::int64_t i) { return load(g[i]); });
    const double product =
        shape.sum(c, [&](std::int64_t i) { return load(g[i]) * ((load(from[i]) - center) * inverse); });
    bias_sums[c] = static_cast<S>(sum);
    weight_sums[c] = static_cast<S>(product);
    const S scale = inverse * (weights ? weights[c] : S{1});
    if (training) {
      const S g_mean = static_cast<S>(sum / shape.count());
      const S slope = static_cast<S>(product / shape.count()) * inverse;
      shape.each(c, [&](std::int64_t i) {
        to[i] = store<T>(scale * (load(g[i]) - g_mean - (load(from[i]) - center) * slope));
      });
    } else {
      shape.each(c, [&](std::int64_t i) { to[i] = store<T>(scale * load(g[i])); });
    }
  });
}

template <class T>
void layer_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, const Tensor& y,
                   const Tensor& mean, const Tensor& invstd) {
  using S = ComputeType<T>;
  const std::int64_t rows = mean.numel();
  const std::int64_t length = x.numel() / rows;
  const T* from = x.data_ptr<T>();
  T* to = y.data_ptr<T>();
  S* means = mean.data_ptr<S>();
  S* inverses = invstd.data_ptr<S>();
  const S* weights = optional<S>(weight);
  const S* biases = optional<S>(bias);
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::kGrain / length);
  core::parallel_for(x.device(), rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = from + r * length;
      T* result = to + r * length;
      const double n = static_cast<double>(length);
      const double average = lane_sum(length, [&](std::int64_t i) { return load(row[i]); }) / n;
      const S center = static_cast<S>(average);
      const double squares = lane_sum(length, [&](std::int64_t i) {
        const S d = load(row[i]) - center;
        return d * d;
      });
      const double shift = average - static_cast<double>(center);
      const S inverse = static_cast<S>(1.0 / std::sqrt(std::max(0.0, squares / n - shift * shift) + eps));
      means[r] = center;
      inverses[r] = inverse;
      DDP_INDEPENDENT_ITERATIONS
      for (std::int64_t i = 0; i < length; ++i) {
        const S scale = weights ? weights[i] : S{1};
        const S add = biases ? biases[i] : S{};
        result[i] = store<T>((load(row[i]) - center) * inverse * scale + add);
      }
    }
  });
}

template <class T>
void layer_input_gradient(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                          const Tensor& invstd, const Tensor& x_grad) {
  using S = ComputeType<T>;
  const std::int64_t rows = mean.numel();
  const std::int64_t length = x.numel() / rows;
  const S* weights = optional<S>(weight);
  const S* means = mean.data_ptr<S>();
  const S* inverses = invstd.data_ptr<S>();
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::kGrain / length);
  core::parallel_for(x.device(), rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* g = grad.data_ptr<T>() + r * length;
      const T* row = x.data_ptr<T>() + r * length;
      T* result = x_grad.data_ptr<T>() + r * length;
      const S center = means[r];
      const S inverse = inverses[r];
      const auto scaled = [&](std::int64_t i) { return load(g[i]) * (weights ? weights[i] : S{1}); };
      const double n = static_cast<double>(length);
      const S g_mean = static_cast<S>(lane_sum(length, scaled) / n);
      const S slope = static_cast<S>(
          lane_sum(length, [&](std::int64_t i) { return scaled(i) * ((load(row[i]) - center) * inverse); }) / n);
      DDP_INDEPENDENT_ITERATIONS
      for (std::int64_t i = 0; i < length; ++i) {
        result[i] = store<T>(inverse * (scaled(i) - g_mean - (load(row[i]) - center) * inverse * slope));
      }
    }
  });
}

// Sums down the columns: pieces are ranges of columns, so each is summed in the order of the rows.
template <class T>
void layer_parameter_gradients(const Tensor& grad, const Tensor& x, const Tensor& mean, const Tensor& invstd,
                               const Tensor& weight_grad, const Tensor& bias_grad) {
  using S = ComputeType<T>;
  constexpr std::int64_t kBlock = 64;
  const std::int64_t rows = mean.numel();
  const std::int64_t length = x.numel() / rows;
  const T* g = grad.data_ptr<T>();
  const T* from = x.data_ptr<T>();
  const S* means = mean.data_ptr<S>();
  const S* inverses = invstd.data_ptr<S>();
  S* weight_sums = weight_grad.data_ptr<S>();
  S* bias_sums = bias_grad.data_ptr<S>();
  core::parallel_for(x.device(), (length + kBlock - 1) / kBlock, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kBlock;
      const std::int64_t count = std::min(kBlock, length - first);
      double products[kBlock] = {};
      double sums[kBlock] = {};
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t at = r * length + first;
        const S center = means[r];
        const S inverse = inverses[r];
        for (std::int64_t j = 0; j < count; ++j) {
          const S value = load(g[at + j]);
          sums[j] += static_cast<double>(value);
          products[j] += static_cast<double>(value * ((load(from[at + j]) - center) * inverse));
        }
      }
      for (std::int64_t j = 0; j < count; ++j) {
        bias_sums[first + j] = static_cast<S>(sums[j]);
        weight_sums[first + j] = static_cast<S>(products[j]);
      }
    }
  });
}

class CpuNorm final : public NormBackend {
 public:
  void batch_statistics(const Tensor& x, const Tensor& mean, const Tensor& variance) override {
    dispatch_floating("batch_norm", x.dtype(), [&]<class T>(TypeTag<T>) { statistics<T>(x, mean, variance); });
  }
  void batch_normalize(const Tensor& x, const Tensor& mean, const Tensor& invstd, const Tensor& weight,
                       const Tensor& bias, const Tensor& y) override {
    dispatch_floating("batch_norm", x.dtype(),
                      [&]<class T>(TypeTag<T>) { normalize<T>(x, mean, invstd, weight, bias, y); });
  }
  void batch_norm_grad(const Tensor& grad, const Tensor& x, const Tensor& mean, const Tensor& invstd,
                       const Tensor& weight, bool training, const Tensor& x_grad, const Tensor& weight_grad,
                       const Tensor& bias_grad) override {
    dispatch_floating("batch_norm_grad", x.dtype(), [&]<class T>(TypeTag<T>) {
      batch_gradient<T>(grad, x, mean, invstd, weight, training, x_grad, weight_grad, bias_grad);
    });
  }
  void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, const Tensor& y,
                  const Tensor& mean, const Tensor& invstd) override {
    dispatch_floating("layer_norm", x.dtype(),
                      [&]<class T>(TypeTag<T>) { layer_forward<T>(x, weight, bias, eps, y, mean, invstd); });
  }
  void layer_norm_grad(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                       const Tensor& invstd, const Tensor& x_grad, const Tensor& weight_grad,
                       const Tensor& bias_grad) override {
    dispatch_floating("layer_norm_grad", x.dtype(), [&]<class T>(TypeTag<T>) {
      layer_input_gradient<T>(grad, x, weight, mean, invstd, x_grad);
      layer_parameter_gradients<T>(grad, x, mean, invstd, weight_grad, bias_grad);
    });
  }
};

}  // namespace

NormBackend& cpu_norm() {
  static CpuNorm backend;
  return backend;
}

}  // namespace ddp::raw
