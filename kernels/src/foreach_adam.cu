#include "foreach_update.cuh"

namespace ddp::kernels {
namespace {

template <int N>
__global__ void __launch_bounds__(kForeachThreads)
    adam_kernel(const __grid_constant__ TablePart<UpdateChunk, N> table, AdamScalars scalars) {
  const Piece<UpdateChunk> piece = find_piece(table);
  with_floating_on_device(piece.chunk.type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    const C rate = static_cast<C>(piece.chunk.rate);
    const C root = static_cast<C>(piece.chunk.root);
    const C keep1 = static_cast<C>(scalars.beta1);
    const C keep2 = static_cast<C>(scalars.beta2);
    const C fresh1 = static_cast<C>(1 - scalars.beta1);
    const C fresh2 = static_cast<C>(1 - scalars.beta2);
    const C eps = static_cast<C>(scalars.eps);
    const C decay = static_cast<C>(scalars.decay);
    const C shrink = static_cast<C>(scalars.shrink);
    update<T>(piece, Use::change, Use::change, [&](C& p, C gradient, C& m, C& v) {
      const C g = gradient + decay * p;
      m = keep1 * m + fresh1 * g;
      v = keep2 * v + fresh2 * (g * g);
      p = shrink * p + rate * m / (sqrt_of(v) * root + eps);
    });
  });
}

}  // namespace

cudaError_t adam(const UpdateTable& table, const AdamScalars& scalars, cudaStream_t stream) {
  static const void* const kernels[] = {reinterpret_cast<const void*>(&adam_kernel<kUpdateCapacities[0]>),
                                        reinterpret_cast<const void*>(&adam_kernel<kUpdateCapacities[1]>),
                                        reinterpret_cast<const void*>(&adam_kernel<kUpdateCapacities[2]>)};
  return launch_update(kernels, table, scalars, stream);
}

}  // namespace ddp::kernels
