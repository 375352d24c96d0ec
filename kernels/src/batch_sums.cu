// Statistics of a batch and sums of its gradients, per channel.
#include "norm_sums.cuh"

namespace ddp::kernels {
namespace {

template <class Element>
struct StatisticsOp {
  using T = Element;
  using C = Compute<T>;
  using State = Moments<C>;
  static constexpr int kInputs = 1;
  struct Center {
    C pivot;
  };

  const T* in[1];
  std::int64_t area;
  C* mean;
  C* variance;

  /// A number of the channel, the same in all of its pieces.
  __device__ Center center(std::int64_t channel) const { return {load_of(in[0][channel * area])}; }
  template <bool kEach, int Width, int Centers>
  __device__ void add(State& state, const C (&values)[1][Width], const Center (&centers)[Centers]) const {
    state.add(values[0], centers[0].pivot);
  }
  __device__ void finish(const State& state, std::int64_t channel) const {
    mean[channel] = center(channel).pivot + state.mean;
    variance[channel] = state.squares / state.count;
  }
};

template <class T>
GradSumsOp<T> grad_sums(const void* grad, const void* x, const void* mean, const void* invstd, void* weight_grad,
                        void* bias_grad) {
  using C = Compute<T>;
  return {{static_cast<const T*>(grad), static_cast<const T*>(x)},
          static_cast<const C*>(mean),
          static_cast<const C*>(invstd),
          static_cast<C*>(weight_grad),
          static_cast<C*>(bias_grad)};
}

}  // namespace

std::int64_t channel_pieces(const ChannelShape& shape) {
  constexpr std::int64_t kEnoughBlocks = 1024;   // to fill any device
  constexpr std::int64_t kLeastElements = 4096;  // of a block
  constexpr std::int64_t kMostPieces = 512;
  std::int64_t blocks = shape.channels;
  std::int64_t elements = shape.images * shape.area;  // of a block if there were one piece
  if (shape.area == 1) {
    blocks = column_blocks(shape.channels);
    elements *= kColumnLanes;
  }
  const std::int64_t wanted = (kEnoughBlocks + blocks - 1) / blocks;
  const std::int64_t possible = (elements + kLeastElements - 1) / kLeastElements;
  return std::clamp<std::int64_t>(std::min(wanted, possible), 1, kMostPieces);
}

std::size_t partials_bytes(const ChannelShape& shape, std::int64_t pieces) {
  return static_cast<std::size_t>(shape.channels * pieces) * sizeof(Moments<double>);
}

cudaError_t batch_statistics(const void* x, const ChannelShape& shape, std::int64_t pieces, void* partials, void* mean,
                             void* variance, Type type, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    const StatisticsOp<T> op{{static_cast<const T*>(x)}, shape.area, static_cast<C*>(mean), static_cast<C*>(variance)};
    return launch_channel_sums(op, shape, pieces, partials, stream);
  });
}

cudaError_t merge_statistics(const void* x, const void* partials, const ChannelShape& shape, std::int64_t pieces,
                             void* mean, void* variance, Type type, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    const StatisticsOp<T> op{{static_cast<const T*>(x)}, shape.area, static_cast<C*>(mean), static_cast<C*>(variance)};
    return launch_merge(op, partials, shape.channels, pieces, stream);
  });
}

cudaError_t batch_grad_sums(const void* grad, const void* x, const ChannelShape& shape, const void* mean,
                            const void* invstd, std::int64_t pieces, void* partials, void* weight_grad, void* bias_grad,
                            Type type, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_channel_sums(grad_sums<T>(grad, x, mean, invstd, weight_grad, bias_grad), shape, pieces, partials,
                               stream);
  });
}

cudaError_t merge_grad_sums(const void* partials, const ChannelShape& shape, std::int64_t pieces, void* weight_grad,
                            void* bias_grad, Type type, cudaStream_t stream) {
  const auto merge = [&]<class C>(C*) {
    return launch_merge(grad_sums<C>(nullptr, nullptr, nullptr, nullptr, weight_grad, bias_grad), partials,
                        shape.channels, pieces, stream);
  };
  return type == Type::float64 ? merge(static_cast<double*>(nullptr)) : merge(static_cast<float*>(nullptr));
}

cudaError_t layer_grad_sums(const void* grad, const void* x, std::int64_t rows, std::int64_t length, const void* mean,
                            const void* invstd, std::int64_t pieces, void* partials, void* weight_grad, void* bias_grad,
                            Type type, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_column_sums<true>(grad_sums<T>(grad, x, mean, invstd, weight_grad, bias_grad), rows, length, pieces,
                                    partials, stream);
  });
}

}  // namespace ddp::kernels
