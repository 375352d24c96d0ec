#pragma once

#include "norm.cuh"

/// What follows the sums of a batch: every element on its own, by numbers of its channel. An `Op` has T, kInputs,
/// in[kInputs]; Channel channel(c), the numbers; apply(channel, values[kInputs]), the result.
namespace ddp::kernels {

/// From an element of [.., channels, area] to its channel and its place in the plane.
struct Locator {
  std::int64_t channels;
  std::int64_t area;
  bool narrow;  // all indices are below 2^31
  Divisor by_channels;
  Divisor by_area;

  explicit Locator(const ChannelShape& s)
      : channels(s.channels), area(s.area), narrow(s.images * s.channels * s.area < (std::int64_t{1} << 31)) {
    if (!narrow) return;
    by_channels = Divisor(static_cast<std::uint32_t>(channels));
    by_area = Divisor(static_cast<std::uint32_t>(area));
  }
  __device__ void find(std::int64_t element, std::int64_t& channel, std::int64_t& offset) const {
    if (narrow) {
      const auto e = static_cast<std::uint32_t>(element);
      const std::uint32_t plane = by_area.quotient(e);
      offset = e - plane * by_area.divisor;
      channel = plane - by_channels.quotient(plane) * by_channels.divisor;
    } else {
      const std::int64_t plane = element / area;
      offset = element - plane * area;
      channel = plane % channels;
    }
  }
};

/// A pack lies in one channel where kWhole.
template <class Op, int Width, bool kWhole>
__global__ void __launch_bounds__(kNormThreads)
    channel_map_kernel(Op op, typename Op::T* out, std::int64_t count, Locator locator) {
  using C = Compute<typename Op::T>;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kNormThreads * Width;
  std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kNormThreads + threadIdx.x) * Width;
  for (; i < count; i += step) {
    std::int64_t channel;
    std::int64_t offset;
    locator.find(i, channel, offset);
    typename Op::Channel now = op.channel(channel);
    const auto forward = [&] {  // to the next element
      if (kWhole || ++offset < locator.area) return;
      offset = 0;
      if (++channel == locator.channels) channel = 0;
      now = op.channel(channel);
    };
    if (i + Width > count) {
      for (std::int64_t rest = i; rest < count; ++rest) {
        C values[Op::kInputs];
#pragma unroll
        for (int n = 0; n < Op::kInputs; ++n) values[n] = load_of(op.in[n][rest]);
        out[rest] = store_of<typename Op::T>(op.apply(now, values));
        forward();
      }
      return;
    }
    C packs[Op::kInputs][Width];
#pragma unroll
    for (int n = 0; n < Op::kInputs; ++n) load_pack<Width>(op.in[n] + i, packs[n]);
    C results[Width];
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      C values[Op::kInputs];
#pragma unroll
      for (int n = 0; n < Op::kInputs; ++n) values[n] = packs[n][w];
      results[w] = op.apply(now, values);
      if (w + 1 < Width) forward();
    }
    store_pack<Width>(out + i, results);
  }
}

template <class Op>
cudaError_t launch_channel_map(const Op& op, void* out, const ChannelShape& s, cudaStream_t stream) {
  using T = typename Op::T;
  constexpr int kWidth = kNormWidth<T>;
  const std::int64_t count = s.images * s.channels * s.area;
  bool packs = on_16_bytes({out});
  for (int n = 0; n < Op::kInputs; ++n) packs = packs && on_16_bytes({op.in[n]});
  auto* to = static_cast<T*>(out);
  const Locator locator(s);
  const unsigned blocks = blocks_of(count, static_cast<std::int64_t>(kNormThreads) * (packs ? kWidth : 1));
  if (!packs) {
    channel_map_kernel<Op, 1, true><<<blocks, kNormThreads, 0, stream>>>(op, to, count, locator);
  } else if (s.area % kWidth == 0) {
    channel_map_kernel<Op, kWidth, true><<<blocks, kNormThreads, 0, stream>>>(op, to, count, locator);
  } else {
    channel_map_kernel<Op, kWidth, false><<<blocks, kNormThreads, 0, stream>>>(op, to, count, locator);
  }
  return cudaGetLastError();
}

}  // namespace ddp::kernels
