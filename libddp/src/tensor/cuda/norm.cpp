#include "ddp_kernels/norm.h"

#include "tensor/backend/norm_backend.h"
#include "tensor/cuda/kernel_call.h"
#include "tensor/cuda/scratch.h"

namespace ddp::raw {
namespace {

kernels::ChannelShape shape_of(const Tensor& x) {
  const std::int64_t planes = x.size(0) * x.size(1);
  return {.images = x.size(0), .channels = x.size(1), .area = x.numel() / planes};
}

const void* optional(const Tensor& x) { return x.defined() ? x.data() : nullptr; }

/// sums(pieces, partials, stream) in one launch, followed by merge(pieces, partials, stream) where there are partials.
template <class Sums, class Merge>
void reduce_channels(const char* what, Device device, const kernels::ChannelShape& shape, const Sums& sums,
                     const Merge& merge) {
  const std::int64_t pieces = kernels::channel_pieces(shape);
  const std::size_t bytes = pieces > 1 ? kernels::partials_bytes(shape, pieces) : 0;
  const cuda::Scratch<std::byte> partials(static_cast<std::int64_t>(bytes), device);
  launch_kernel(what, device, [&](cudaStream_t stream) { return sums(pieces, partials.data(), stream); });
  if (pieces == 1) return;
  launch_kernel(what, device, [&](cudaStream_t stream) { return merge(pieces, partials.data(), stream); });
}

class CudaNorm final : public NormBackend {
 public:
  void batch_statistics(const Tensor& x, const Tensor& mean, const Tensor& variance) override {
    const kernels::ChannelShape shape = shape_of(x);
    const kernels::Type type = kernel_type(x);
    reduce_channels(
        "kernels::batch_statistics", x.device(), shape,
        [&](std::int64_t pieces, void* partials, cudaStream_t stream) {
          return kernels::batch_statistics(x.data(), shape, pieces, partials, mean.data(), variance.data(), type,
                                           stream);
        },
        [&](std::int64_t pieces, const void* partials, cudaStream_t stream) {
          return kernels::merge_statistics(x.data(), partials, shape, pieces, mean.data(), variance.data(), type,
                                           stream);
        });
  }

  void batch_normalize(const Tensor& x, const Tensor& mean, const Tensor& invstd, const Tensor& weight,
                       const Tensor& bias, const Tensor& y) override {
    launch_kernel("kernels::batch_normalize", x.device(), [&](cudaStream_t stream) {
      return kernels::batch_normalize(x.data(), shape_of(x), mean.data(), invstd.data(), optional(weight),
                                      optional(bias), y.data(), kernel_type(x), stream);
    });
  }

  void batch_norm_grad(const Tensor& grad, const Tensor& x, const Tensor& mean, const Tensor& invstd,
                       const Tensor& weight, bool training, const Tensor& x_grad, const Tensor& weight_grad,
                       const Tensor& bias_grad) override {
    const kernels::ChannelShape shape = shape_of(x);
    const kernels::Type type = kernel_type(x);
    reduce_channels(
        "kernels::batch_grad_sums", x.device(), shape,
        [&](std::int64_t pieces, void* partials, cudaStream_t stream) {
          return kernels::batch_grad_sums(grad.data(), x.data(), shape, mean.data(), invstd.data(), pieces, partials,
                                          weight_grad.data(), bias_grad.data(), type, stream);
        },
        [&](std::int64_t pieces, const void* partials, cudaStream_t stream) {
          return kernels::merge_grad_sums(partials, shape, pieces, weight_grad.data(), bias_grad.data(), type, stream);
        });
    launch_kernel("kernels::batch_input_grad", x.device(), [&](cudaStream_t stream) {
      return kernels::batch_input_grad(grad.data(), x.data(), shape, mean.data(), invstd.data(), optional(weight),
                                       weight_grad.data(), bias_grad.data(), training, x_grad.data(), type, stream);
    });
  }

  void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, const Tensor& y,
                  const Tensor& mean, const Tensor& invstd) override {
    const std::int64_t rows = mean.numel();
    launch_kernel("kernels::layer_norm", x.device(), [&](cudaStream_t stream) {
      return kernels::layer_norm(x.data(), rows, x.numel() / rows, optional(weight), optional(bias), eps, y.data(),
                                 mean.data(), invstd.data(), kernel_type(x), stream);
    });
  }

  void layer_norm_grad(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                       const Tensor& invstd, const Tensor& x_grad, const Tensor& weight_grad,
                       const Tensor& bias_grad) override {
    const std::int64_t rows = mean.numel();
    const std::int64_t length = x.numel() / rows;
    const kernels::Type type = kernel_type(x);
    launch_kernel("kernels::layer_input_grad", x.device(), [&](cudaStream_t stream) {
      return kernels::layer_input_grad(grad.data(), x.data(), rows, length, optional(weight), mean.data(),
                                       invstd.data(), x_grad.data(), type, stream);
    });
    const kernels::ChannelShape columns{.images = rows, .channels = length, .area = 1};
    reduce_channels(
        "kernels::layer_grad_sums", x.device(), columns,
        [&](std::int64_t pieces, void* partials, cudaStream_t stream) {
          return kernels::layer_grad_sums(grad.data(), x.data(), rows, length, mean.data(), invstd.data(), pieces,
                                          partials, weight_grad.data(), bias_grad.data(), type, stream);
        },
        [&](std::int64_t pieces, const void* partials, cudaStream_t stream) {
          return kernels::merge_grad_sums(partials, columns, pieces, weight_grad.data(), bias_grad.data(), type,
                                          stream);
        });
  }
};

}  // namespace

NormBackend& cuda_norm() {
  static CudaNorm backend;
  return backend;
}

}  // namespace ddp::raw
