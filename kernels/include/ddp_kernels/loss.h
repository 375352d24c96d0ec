#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// Losses over row-major arrays. Rules as in elementwise.h; floating-point types. A sum over rows is one launch
/// while its blocks are few enough to be one: `..._blocks` says how many there are. If more, each block leaves a
/// partial sum and `finish_sum` adds them in order, so that results repeat bit for bit. With one block `partials`
/// may be null and nothing is left to do. Zero rows are launched too: the mean over nothing is NaN, the sum 0.
namespace ddp::kernels {

struct CrossEntropy {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  bool mean = true;
  double smoothing = 0;
};

unsigned cross_entropy_blocks(std::int64_t rows, std::int64_t classes);
/// log_probs = log_softmax(logits) along the classes and, from them as they are stored,
/// loss = sum or mean over rows of -(1-e) log_probs[target] - e/C sum(log_probs); e the smoothing. A target
/// out of range makes the loss NaN; nothing is read or written for it.
cudaError_t cross_entropy(void* loss, double* partials, void* log_probs, const void* logits, const std::int64_t* target,
                          const CrossEntropy& options, Type type, cudaStream_t stream);
/// out = scale (exp(log_probs) - e/C - (1-e) onehot(target)), scale the number at `grad`, divided by the rows for
/// the mean. A row whose target is out of range becomes NaN.
cudaError_t cross_entropy_grad(void* out, const void* grad, const void* log_probs, const std::int64_t* target,
                               const CrossEntropy& options, Type type, cudaStream_t stream);

unsigned mse_loss_blocks(std::int64_t count);
/// Sum or mean of (x - target)^2.
cudaError_t mse_loss(void* loss, double* partials, const void* x, const void* target, std::int64_t count, bool mean,
                     Type type, cudaStream_t stream);
/// out = scale * (x - target), scale twice the number at `grad`, divided by the count for the mean.
cudaError_t mse_loss_grad(void* out, const void* grad, const void* x, const void* target, std::int64_t count, bool mean,
                          Type type, cudaStream_t stream);

unsigned count_correct_blocks(std::int64_t rows, std::int64_t classes);
/// Rows of logits whose first largest element is at target; NaN is larger than any number.
cudaError_t count_correct(std::int64_t* out, double* partials, const void* logits, const std::int64_t* target,
                          std::int64_t rows, std::int64_t classes, Type type, cudaStream_t stream);

/// out, a floating-point number or an int64, = sum of partials / divisor.
cudaError_t finish_sum(void* out, Type type, const double* partials, unsigned count, double divisor,
                       cudaStream_t stream);

}  // namespace ddp::kernels
