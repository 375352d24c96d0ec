#include "ddp_kernels/reduce.h"

#include "core/allocator.h"
#include "tensor/backend/reduce_backend.h"
#include "tensor/copy.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {
namespace {

/// A reduction that may need scratch memory and then is two launches; `launch(scratch, &bytes, stream)` as in
/// ddp_kernels/reduce.h.
template <class Launch>
void launch_reduction(const char* what, Device device, const Launch& launch) {
  const StreamView stream = current_stream(device);
  std::size_t bytes = 0;
  const core::cuda::DeviceGuard guard(device);
  cudaError_t error = launch(nullptr, &bytes, stream.native());
  int launches = 1;
  if (bytes != 0 && error == cudaSuccess) {
    const std::size_t taken = bytes;
    void* scratch = core::allocate(taken, stream);
    error = launch(scratch, &bytes, stream.native());
    core::deallocate(scratch, taken, stream);  // in stream order: whoever gets it next runs after the second launch
    launches = 2;
  }
  if (error != cudaSuccess) [[unlikely]] {
    core::cuda::fail_cuda(error, what, __FILE__, __LINE__);
  }
  for (; launches > 0; --launches) report_launch(what, device);
}

class CudaReduce final : public ReduceBackend {
 public:
  void sum(const Tensor& x, const Tensor& out, bool accumulate) override {
    if (x.numel() == 0) {
      if (!accumulate) fill_(out, 0);
      return;
    }
    launch_reduction("kernels::sum", x.device(), [&](void* scratch, std::size_t* bytes, cudaStream_t stream) {
      return kernels::sum(kernel_array(out), kernel_sizes(out), kernel_input(x), kernel_sizes(x), kernel_type(x),
                          accumulate, scratch, bytes, stream);
    });
  }

  void max(const Tensor& x, std::size_t dim, const Tensor& values, const Tensor& indices) override {
    launch_kernel("kernels::max", x.device(), [&](cudaStream_t stream) {
      return kernels::max(kernel_array(values), kernel_array(indices), kernel_input(x), kernel_sizes(x),
                          static_cast<int>(dim), kernel_type(x), stream);
    });
  }

  void scatter_by_index(const Tensor& grad, const Tensor& indices, const Tensor& out, std::size_t dim) override {
    if (out.sizes()[dim] == 0) {
      detail::fail<InvalidArgument>("scatter_by_index: dimension ", dim, " of sizes ", out.sizes(), " is empty");
    }
    launch_kernel("kernels::scatter_by_index", out.device(), [&](cudaStream_t stream) {
      return kernels::scatter_by_index(kernel_array(out), kernel_sizes(out), static_cast<int>(dim), kernel_input(grad),
                                       kernel_input(indices), kernel_type(out), stream);
    });
  }

  void sum_of_squares(const Tensor& x, const Tensor& out) override {
    launch_reduction("kernels::sum_of_squares", x.device(),
                     [&](void* scratch, std::size_t* bytes, cudaStream_t stream) {
                       return kernels::sum_of_squares(out.data_ptr<double>(), kernel_input(x), kernel_sizes(x),
                                                      kernel_type(x), scratch, bytes, stream);
                     });
  }

  void count_nonfinite(const Tensor& x, const Tensor& out) override {
    launch_reduction("kernels::count_nonfinite", x.device(),
                     [&](void* scratch, std::size_t* bytes, cudaStream_t stream) {
                       return kernels::count_nonfinite(out.data_ptr<std::int64_t>(), kernel_input(x), kernel_sizes(x),
                                                       kernel_type(x), scratch, bytes, stream);
                     });
  }
};

}  // namespace

ReduceBackend& cuda_reduce() {
  static CudaReduce backend;
  return backend;
}

}  // namespace ddp::raw
