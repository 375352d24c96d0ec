#include "foreach_update.cuh"

namespace ddp::kernels {
namespace {

template <int N>
__global__ void __launch_bounds__(kForeachThreads)
    sgd_kernel(const __grid_constant__ TablePart<UpdateChunk, N> table, SgdScalars scalars) {
  const Piece<UpdateChunk> piece = find_piece(table);
  with_floating_on_device(piece.chunk.type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    const C rate = static_cast<C>(-scalars.lr);
    const C decay = static_cast<C>(scalars.weight_decay);
    const C momentum = static_cast<C>(scalars.momentum);
    const C fresh = static_cast<C>(1 - scalars.dampening);
    const bool has_state = scalars.momentum != 0;
    const bool first = piece.chunk.first;
    const bool nesterov = scalars.nesterov;
    const Use use = !has_state ? Use::none : first ? Use::write : Use::change;
    update<T>(piece, use, Use::none, [&](C& p, C gradient, C& v, C&) {
      const C g = gradient + decay * p;
      C direction = g;
      if (has_state) {
        v = first ? g : momentum * v + fresh * g;
        direction = nesterov ? g + momentum * v : v;
      }
      p += rate * direction;
    });
  });
}

}  // namespace

cudaError_t sgd(const UpdateTable& table, const SgdScalars& scalars, cudaStream_t stream) {
  static const void* const kernels[] = {reinterpret_cast<const void*>(&sgd_kernel<kUpdateCapacities[0]>),
                                        reinterpret_cast<const void*>(&sgd_kernel<kUpdateCapacities[1]>),
                                        reinterpret_cast<const void*>(&sgd_kernel<kUpdateCapacities[2]>)};
  return launch_update(kernels, table, scalars, stream);
}

}  // namespace ddp::kernels
