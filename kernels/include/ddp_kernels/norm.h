#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// Normalisations of row-major arrays of one floating-point type. What is per channel or per row (statistics, weight,
/// bias and their gradients) is float64 for float64, else float32, and so is the arithmetic. Weight and bias may be
/// null. Results do not depend on timing. Each call is one launch on `stream` of the current device, never blocks, and
/// returns the launch's error, or cudaErrorInvalidValue for a type that it does not take. All sizes are at least 1.
namespace ddp::kernels {

/// Arrays seen as [images, channels, area].
struct ChannelShape {
  std::int64_t images;
  std::int64_t channels;
  std::int64_t area;
};

/// Into how many pieces each channel is cut, so that the device is full. Where that is more than 1, a reduction below
/// leaves partial results, which its merge_... turns into the result; else it writes the result itself.
std::int64_t channel_pieces(const ChannelShape& shape);
/// Bytes of `partials` for so many pieces, at most.
std::size_t partials_bytes(const ChannelShape& shape, std::int64_t pieces);

/// Mean and biased variance of each channel.
cudaError_t batch_statistics(const void* x, const ChannelShape& shape, std::int64_t pieces, void* partials, void* mean,
                             void* variance, Type type, cudaStream_t stream);
cudaError_t merge_statistics(const void* x, const void* partials, const ChannelShape& shape, std::int64_t pieces,
                             void* mean, void* variance, Type type, cudaStream_t stream);

/// y = (x - mean) * invstd * weight + bias.
cudaError_t batch_normalize(const void* x, const ChannelShape& shape, const void* mean, const void* invstd,
                            const void* weight, const void* bias, void* y, Type type, cudaStream_t stream);

/// weight_grad = sum of grad * (x - mean) * invstd and bias_grad = sum of grad, of each channel.
cudaError_t batch_grad_sums(const void* grad, const void* x, const ChannelShape& shape, const void* mean,
                            const void* invstd, std::int64_t pieces, void* partials, void* weight_grad, void* bias_grad,
                            Type type, cudaStream_t stream);
cudaError_t merge_grad_sums(const void* partials, const ChannelShape& shape, std::int64_t pieces, void* weight_grad,
                            void* bias_grad, Type type, cudaStream_t stream);

/// Gradient of x from the sums above; with `training` false mean and invstd are constants.
cudaError_t batch_input_grad(const void* grad, const void* x, const ChannelShape& shape, const void* mean,
                             const void* invstd, const void* weight, const void* weight_grad, const void* bias_grad,
                             bool training, void* x_grad, Type type, cudaStream_t stream);

/// x as [rows, length]: y = (x - mean) * invstd * weight + bias with mean and invstd of each row, which are stored,
/// and a weight and bias of each column.
cudaError_t layer_norm(const void* x, std::int64_t rows, std::int64_t length, const void* weight, const void* bias,
                       double eps, void* y, void* mean, void* invstd, Type type, cudaStream_t stream);
cudaError_t layer_input_grad(const void* grad, const void* x, std::int64_t rows, std::int64_t length,
                             const void* weight, const void* mean, const void* invstd, void* x_grad, Type type,
                             cudaStream_t stream);
/// As batch_grad_sums with the columns as channels, {rows, length, 1}, but mean and invstd are of the row. To be
/// merged by merge_grad_sums.
cudaError_t layer_grad_sums(const void* grad, const void* x, std::int64_t rows, std::int64_t length, const void* mean,
                            const void* invstd, std::int64_t pieces, void* partials, void* weight_grad, void* bias_grad,
                            Type type, cudaStream_t stream);

}  // namespace ddp::kernels
