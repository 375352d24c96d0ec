#pragma once

#include "arithmetic.cuh"
#include "foreach.cuh"

/// What the optimiser steps share.
namespace ddp::kernels {

/// What a step does with the states.
enum class Use { none, write, change };

/// step(p, g, s0, s1) in the type that T is computed in, for each element of a piece.
template <class T, class Step>
__device__ void update(const Piece<UpdateChunk>& piece, Use use0, Use use1, const Step& step) {
  using C = Compute<T>;
  constexpr int kWidth = kPackWidth<T>;
  constexpr int kUnroll = kPacksUnderWay<T>;
  constexpr std::int64_t kStride = static_cast<std::int64_t>(kForeachThreads) * kWidth;
  const UpdateChunk& chunk = piece.chunk;
  T* parameter = static_cast<T*>(chunk.parameter);
  const T* gradient = static_cast<const T*>(chunk.gradient);
  T* state0 = static_cast<T*>(chunk.state0);
  T* state1 = static_cast<T*>(chunk.state1);
  // Used only where something is stored: the other loads do not wait for it.
  const bool refused = chunk.refusal != nullptr && *chunk.refusal != 0;
  // Exactly one thread of the launch, so nothing has to be atomic.
  if (refused && chunk.refused != nullptr && piece.begin == 0 && threadIdx.x == 0) *chunk.refused += 1;

  const auto one = [&](std::int64_t i) {
    C p = Convert<C, T>::apply(parameter[i]);
    C s0 = use0 == Use::change ? Convert<C, T>::apply(state0[i]) : C{};
    C s1 = use1 == Use::change ? Convert<C, T>::apply(state1[i]) : C{};
    step(p, Convert<C, T>::apply(gradient[i]), s0, s1);
    if (refused) return;
    parameter[i] = Convert<T, C>::apply(p);
    if (use0 != Use::none) state0[i] = Convert<T, C>::apply(s0);
    if (use1 != Use::none) state1[i] = Convert<T, C>::apply(s1);
  };
  if (!chunk.packed) {
    for (std::int64_t i = piece.begin + threadIdx.x; i < piece.end; i += kForeachThreads) one(i);
    return;
  }
  using P = Pack<T, kWidth>;
  for (std::int64_t at = piece.begin + threadIdx.x * kWidth; at < piece.end; at += kStride * kUnroll) {
    P packs[kUnroll][4] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = at + u * kStride;
      if (i + kWidth > piece.end) continue;
      packs[u][0] = *reinterpret_cast<const P*>(parameter + i);
      packs[u][1] = *reinterpret_cast<const P*>(gradient + i);
      if (use0 == Use::change) packs[u][2] = *reinterpret_cast<const P*>(state0 + i);
      if (use1 == Use::change) packs[u][3] = *reinterpret_cast<const P*>(state1 + i);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = at + u * kStride;
      if (i + kWidth > piece.end) {
        for (std::int64_t rest = i; rest < piece.end; ++rest) one(rest);
        continue;
      }
#pragma unroll
      for (int w = 0; w < kWidth; ++w) {
        C p = Convert<C, T>::apply(packs[u][0].values[w]);
        C s0 = Convert<C, T>::apply(packs[u][2].values[w]);
        C s1 = Convert<C, T>::apply(packs[u][3].values[w]);
        step(p, Convert<C, T>::apply(packs[u][1].values[w]), s0, s1);
        packs[u][0].values[w] = Convert<T, C>::apply(p);
        packs[u][2].values[w] = Convert<T, C>::apply(s0);
        packs[u][3].values[w] = Convert<T, C>::apply(s1);
      }
      if (refused) continue;
      *reinterpret_cast<P*>(parameter + i) = packs[u][0];
      if (use0 != Use::none) *reinterpret_cast<P*>(state0 + i) = packs[u][2];
      if (use1 != Use::none) *reinterpret_cast<P*>(state1 + i) = packs[u][3];
    }
  }
}

inline constexpr int kUpdateCapacities[] = {kSmallUpdate, kMiddleUpdate, UpdateTable::kCapacity};
static_assert(sizeof(TablePart<UpdateChunk, UpdateTable::kCapacity>) == sizeof(UpdateTable));
static_assert(sizeof(UpdateTable) + sizeof(AdamScalars) <= 32764 &&
              sizeof(TablePart<UpdateChunk, kSmallUpdate>) + sizeof(AdamScalars) <= 4096);

template <class Scalars>
cudaError_t launch_update(const void* const (&kernels)[3], const UpdateTable& table, Scalars scalars,
                          cudaStream_t stream) {
  if (table.count == 0) return cudaSuccess;
  if (table.count < 0 || table.count > UpdateTable::kCapacity || !takes(table.chunks, table.count)) {
    return cudaErrorInvalidValue;
  }
  return launch_table(kernels, kUpdateCapacities, &table, table.count, table.blocks, &scalars, stream);
}

}  // namespace ddp::kernels
