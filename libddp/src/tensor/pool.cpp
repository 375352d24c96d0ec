#include <limits>
#include <string_view>

#include "tensor/backend/pool_backend.h"
#include "tensor/checks.h"
#include "tensor/conv.h"
#include "tensor/copy.h"

namespace ddp::raw {
namespace {

std::int64_t output_size(std::string_view operation, std::int64_t in, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding) {
  DDP_CHECK(kernel >= 1 && stride >= 1, InvalidArgument, operation, ": kernel ", kernel, ", stride ", stride,
            "; allowed: 1 or more");
  DDP_CHECK(padding >= 0 && padding <= kernel / 2, InvalidArgument, operation, ": padding ", padding,
            "; allowed: 0 to half the kernel size ", kernel);
  DDP_CHECK(in >= 1 && in >= kernel - 2 * padding, InvalidArgument, operation, ": a kernel of size ", kernel,
            " does not fit an input of size ", in, " with padding ", padding);
  return (in - (kernel - 2 * padding)) / stride + 1;
}

void check_rank(std::string_view operation, const Dims& sizes) {
  DDP_CHECK(sizes.size() == 4, InvalidArgument, operation, ": sizes ", sizes, "; expected [N, C, H, W]");
}

Dims output_sizes(std::string_view operation, const Dims& x, const PoolParams& p) {
  check_rank(operation, x);
  return {x[0], x[1], output_size(operation, x[2], p.kernel.h, p.stride.h, p.padding.h),
          output_size(operation, x[3], p.kernel.w, p.stride.w, p.padding.w)};
}

// A gradient tensor of these sizes; zero where there is no gradient to spread. `run` fills it else.
template <class Run>
Tensor input_grad(const Tensor& grad, const Dims& input_sizes, Run&& run) {
  const Tensor out = empty(input_sizes, grad.options());
  if (out.numel() == 0) return out;
  if (grad.numel() == 0) {
    fill_(out, 0);
  } else {
    run(pool_backend(grad.device()), out);
  }
  return out;
}

}  // namespace

MaxPoolResult max_pool2d(const Tensor& x, const PoolParams& params) {
  check_floating("max_pool2d", x);
  const Dims sizes = output_sizes("max_pool2d", x.sizes(), params);
  DDP_CHECK(x.size(2) * x.size(3) <= std::numeric_limits<std::int32_t>::max(), InvalidArgument,
            "max_pool2d: planes of ", x.sizes(), " are too large for 32-bit indices");
  const MaxPoolResult y{empty(sizes, x.options()), empty(sizes, {DType::int32, x.device()})};
  if (y.values.numel() != 0) pool_backend(x.device()).max_pool2d(contiguous(x), params, y.values, y.indices);
  return y;
}

Tensor max_pool2d_grad(const Tensor& grad, const Tensor& indices, const Dims& input_sizes, const PoolParams& params) {
  check_floating("max_pool2d_grad", grad);
  check_same_device("max_pool2d_grad", grad, indices);
  check_sizes("max_pool2d_grad", "indices", indices, grad.sizes());
  DDP_CHECK(indices.dtype() == DType::int32, InvalidArgument, "max_pool2d_grad: indices are ", indices.dtype(),
            "; expected int32");
  check_sizes("max_pool2d_grad", "gradient", grad, output_sizes("max_pool2d_grad", input_sizes, params));
  return input_grad(grad, input_sizes, [&](PoolBackend& backend, const Tensor& out) {
    backend.max_pool2d_grad(contiguous(grad), contiguous(indices), params, out);
  });
}

Tensor avg_pool2d(const Tensor& x, const PoolParams& params) {
  check_floating("avg_pool2d", x);
  const Tensor y = empty(output_sizes("avg_pool2d", x.sizes(), params), x.options());
  if (y.numel() != 0) pool_backend(x.device()).avg_pool2d(contiguous(x), params, y);
  return y;
}

Tensor avg_pool2d_grad(const Tensor& grad, const Dims& input_sizes, const PoolParams& params) {
  check_floating("avg_pool2d_grad", grad);
  check_sizes("avg_pool2d_grad", "gradient", grad, output_sizes("avg_pool2d_grad", input_sizes, params));
  return input_grad(grad, input_sizes, [&](PoolBackend& backend, const Tensor& out) {
    backend.avg_pool2d_grad(contiguous(grad), params, out);
  });
}

Tensor adaptive_avg_pool2d(const Tensor& x, Pair output) {
  check_floating("adaptive_avg_pool2d", x);
  check_rank("adaptive_avg_pool2d", x.sizes());
  DDP_CHECK(output.h >= 1 && output.w >= 1 && x.size(2) >= 1 && x.size(3) >= 1, InvalidArgument,
            "adaptive_avg_pool2d: input ", x.sizes(), " to output (", output.h, ", ", output.w,
            "); planes must not be empty");
  const Tensor y = empty({x.size(0), x.size(1), output.h, output.w}, x.options());
  if (y.numel() != 0) pool_backend(x.device()).adaptive_avg_pool2d(contiguous(x), y);
  return y;
}

Tensor adaptive_avg_pool2d_grad(const Tensor& grad, const Dims& input_sizes) {
  check_floating("adaptive_avg_pool2d_grad", grad);
  check_rank("adaptive_avg_pool2d_grad", input_sizes);
  check_rank("adaptive_avg_pool2d_grad", grad.sizes());
  DDP_CHECK(
      grad.size(0) == input_sizes[0] && grad.size(1) == input_sizes[1] && input_sizes[2] >= 1 && input_sizes[3] >= 1,
      InvalidArgument, "adaptive_avg_pool2d_grad: gradient ", grad.sizes(), " does not fit an input of ", input_sizes);
  return input_grad(grad, input_sizes, [&](PoolBackend& backend, const Tensor& out) {
    backend.adaptive_avg_pool2d_grad(contiguous(grad), out);
  });
}

}  // namespace ddp::raw
