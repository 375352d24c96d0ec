#include "tensor/cuda/conv_columns.h"

#include <algorithm>

#include "ddp_kernels/conv.h"
#include "tensor/backend/gemm_backend.h"
#include "tensor/copy.h"
#include "tensor/cuda/kernel_call.h"
#include "tensor/tensor_impl.h"

namespace ddp::raw::cuda {
namespace {

constexpr std::int64_t kMostColumnBytes = std::int64_t{256} << 20;

/// The images [first, first + count) of a batch.
struct Chunk {
  std::int64_t first, count;
};

template <class Visit>
void for_each_chunk(std::int64_t images, std::int64_t bytes_an_image, const Visit& visit) {
  const std::int64_t most = std::clamp<std::int64_t>(kMostColumnBytes / bytes_an_image, 1, images);
  for (std::int64_t first = 0; first < images; first += most) visit(Chunk{first, std::min(most, images - first)});
}

kernels::ConvGeometry geometry_of(const Dims& x, const Dims& weight, const Dims& y, const ConvParams& params,
                                  std::int64_t images) {
  kernels::ConvGeometry g;
  g.n = images;
  g.c = x[1];
  g.h = x[2];
  g.w = x[3];
  g.r = weight[2];
  g.s = weight[3];
  g.p = y[2];
  g.q = y[3];
  g.stride_h = params.stride.h;
  g.stride_w = params.stride.w;
  g.padding_h = params.padding.h;
  g.padding_w = params.padding.w;
  g.dilation_h = params.dilation.h;
  g.dilation_w = params.dilation.w;
  return g;
}

char* image(const Tensor& x, std::int64_t index) {
  return static_cast<char*>(x.data()) + index * (x.numel() / x.size(0)) * static_cast<std::int64_t>(size_of(x.dtype()));
}

/// Sizes that all three directions share. x [N, C, H, W], y [N, K, P, Q].
struct Sizes {
  Sizes(const Dims& x, const Dims& weight, const Dims& y, const ConvParams& params, DType dtype)
      : groups(params.groups),
        kernels(y[1] / groups),
        taps(weight[1] * weight[2] * weight[3]),
        area(y[2] * y[3]),
        image_bytes(groups * taps * area * static_cast<std::int64_t>(size_of(dtype))),
        images(x[0]) {}
  std::int64_t groups, kernels, taps, area, image_bytes, images;

  /// weight as [images, groups, kernels, taps], the same for every image.
  Tensor weights(const Tensor& weight, std::int64_t count) const {
    return make_view(weight, {count, groups, kernels, taps}, {0, kernels * taps, taps, 1}, weight.storage_offset());
  }
  /// Part of y as [images, groups, kernels, area].
  Tensor results(const Tensor& y, const Chunk& chunk) const {
    const std::int64_t matrix = kernels * area;
    return make_view(y, {chunk.count, groups, kernels, area}, {groups * matrix, matrix, area, 1},
                     y.storage_offset() + chunk.first * groups * matrix);
  }
};

}  // namespace

void columns_forward(const Tensor& x, const Tensor& weight, const ConvParams& params, const Tensor& out) {
  const Sizes s(x.sizes(), weight.sizes(), out.sizes(), params, x.dtype());
  for_each_chunk(s.images, s.image_bytes, [&](const Chunk& chunk) {
    const Tensor columns = empty({chunk.count, s.groups, s.taps, s.area}, x.options());
    launch_kernel("kernels::image_to_columns", x.device(), [&](cudaStream_t stream) {
      return kernels::image_to_columns(columns.data(), s.area, s.groups * s.taps * s.area, image(x, chunk.first),
                                       geometry_of(x.sizes(), weight.sizes(), out.sizes(), params, chunk.count),
                                       kernel_type(x), stream);
    });
    cuda_gemm().matmul(s.weights(weight, chunk.count), columns, s.results(out, chunk), false);
  });
}

void columns_input_grad(const Tensor& grad, const Tensor& weight, const ConvParams& params, const Tensor& out) {
  const Sizes s(out.sizes(), weight.sizes(), grad.sizes(), params, grad.dtype());
  for_each_chunk(s.images, s.image_bytes, [&](const Chunk& chunk) {
    const Tensor columns = empty({chunk.count, s.groups, s.taps, s.area}, grad.options());
    cuda_gemm().matmul(transpose(s.weights(weight, chunk.count), 2, 3), s.results(grad, chunk), columns, false);
    launch_kernel("kernels::columns_to_image", out.device(), [&](cudaStream_t stream) {
      return kernels::columns_to_image(image(out, chunk.first), columns.data(), s.area, s.groups * s.taps * s.area,
                                       geometry_of(out.sizes(), weight.sizes(), grad.sizes(), params, chunk.count),
                                       kernel_type(out), stream);
    });
  });
}

void columns_weight_grad(const Tensor& grad, const Tensor& x, const ConvParams& params, const Tensor& out,
                         bool accumulate) {
  const Sizes s(x.sizes(), out.sizes(), grad.sizes(), params, x.dtype());
  const Tensor target =
      make_view(out, {s.groups, s.kernels, s.taps}, {s.kernels * s.taps, s.taps, 1}, out.storage_offset());
  for_each_chunk(s.images, s.image_bytes, [&](const Chunk& chunk) {
    // All images side by side, so that one product sums over them.
    const std::int64_t width = chunk.count * s.area;
    const Tensor columns = empty({s.groups, s.taps, width}, x.options());
    launch_kernel("kernels::image_to_columns", x.device(), [&](cudaStream_t stream) {
      return kernels::image_to_columns(columns.data(), width, s.area, image(x, chunk.first),
                                       geometry_of(x.sizes(), out.sizes(), grad.sizes(), params, chunk.count),
                                       kernel_type(x), stream);
    });
    const Tensor grads = contiguous(permute(s.results(grad, chunk), {1, 2, 0, 3}));
    const Tensor left =
        make_view(grads, {s.groups, s.kernels, width}, {s.kernels * width, width, 1}, grads.storage_offset());
    cuda_gemm().matmul(left, transpose(columns, 1, 2), target, accumulate || chunk.first > 0);
  });
}

}  // namespace ddp::raw::cuda
