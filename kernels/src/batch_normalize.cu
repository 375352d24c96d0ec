#include "channel_map.cuh"

namespace ddp::kernels {
namespace {

/// y = (x - center) * scale + add.
template <class Element>
struct Normalize {
  using T = Element;
  using C = Compute<T>;
  static constexpr int kInputs = 1;
  struct Channel {
    C center, scale, add;
  };
  const T* in[1];
  const C* mean;
  const C* invstd;
  const C* weight;
  const C* bias;

  __device__ Channel channel(std::int64_t c) const {
    return {mean[c], invstd[c] * (weight != nullptr ? weight[c] : C{1}), bias != nullptr ? bias[c] : C{0}};
  }
  __device__ C apply(const Channel& c, const C (&values)[1]) const { return (values[0] - c.center) * c.scale + c.add; }
};

}  // namespace

cudaError_t batch_normalize(const void* x, const ChannelShape& shape, const void* mean, const void* invstd,
                            const void* weight, const void* bias, void* y, Type type, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    const Normalize<T> op{{static_cast<const T*>(x)},
                          static_cast<const C*>(mean),
                          static_cast<const C*>(invstd),
                          static_cast<const C*>(weight),
                          static_cast<const C*>(bias)};
    return launch_channel_map(op, y, shape, stream);
  });
}

}  // namespace ddp::kernels
