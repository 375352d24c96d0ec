#include "channel_map.cuh"

namespace ddp::kernels {
namespace {

/// The gradient of x where mean and invstd are functions of x.
template <class Element>
struct TrainingGrad {
  using T = Element;
  using C = Compute<T>;
  static constexpr int kInputs = 2;
  struct Channel {
    C center, scale, mean, slope;
  };
  const T* in[2];  // gradient, x
  const C* mean;
  const C* invstd;
  const C* weight;
  const C* weight_grad;
  const C* bias_grad;
  C count;

  __device__ Channel channel(std::int64_t c) const {
    const C inverse = invstd[c];
    return {mean[c], inverse * (weight != nullptr ? weight[c] : C{1}), bias_grad[c] / count,
            weight_grad[c] / count * inverse};
  }
  __device__ C apply(const Channel& c, const C (&values)[2]) const {
    return c.scale * (values[0] - c.mean - (values[1] - c.center) * c.slope);
  }
};

/// The same with constants.
template <class Element>
struct EvaluationGrad {
  using T = Element;
  using C = Compute<T>;
  static constexpr int kInputs = 1;
  struct Channel {
    C scale;
  };
  const T* in[1];  // gradient
  const C* invstd;
  const C* weight;

  __device__ Channel channel(std::int64_t c) const { return {invstd[c] * (weight != nullptr ? weight[c] : C{1})}; }
  __device__ C apply(const Channel& c, const C (&values)[1]) const { return c.scale * values[0]; }
};

}  // namespace

cudaError_t batch_input_grad(const void* grad, const void* x, const ChannelShape& shape, const void* mean,
                             const void* invstd, const void* weight, const void* weight_grad, const void* bias_grad,
                             bool training, void* x_grad, Type type, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    if (!training) {
      const EvaluationGrad<T> op{
          {static_cast<const T*>(grad)}, static_cast<const C*>(invstd), static_cast<const C*>(weight)};
      return launch_channel_map(op, x_grad, shape, stream);
    }
    const TrainingGrad<T> op{{static_cast<const T*>(grad), static_cast<const T*>(x)},
                             static_cast<const C*>(mean),
                             static_cast<const C*>(invstd),
                             static_cast<const C*>(weight),
                             static_cast<const C*>(weight_grad),
                             static_cast<const C*>(bias_grad),
                             static_cast<C>(shape.images * shape.area)};
    return launch_channel_map(op, x_grad, shape, stream);
  });
}

}  // namespace ddp::kernels
