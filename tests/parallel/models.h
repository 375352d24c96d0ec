#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/nn/module.h"
#include "ddp/parallel/distributed_data_parallel.h"
#include "parallel/support.h"

/// Small modules whose gradients are known by hand.
namespace ddp::test {

inline Tensor scalar(double value, DType dtype = DType::float32) { return full({1}, value, {dtype, test_device()}); }

/// y = w * x: the local gradient of w is x.
class Scale : public nn::Module {
 public:
  explicit Scale(double value = 1, const std::string& name = "w") : w(register_parameter(name, scalar(value))) {}
  Tensor forward(const Tensor& x) { return mul(w, x); }
  Tensor forward(double x) { return forward(scalar(x)); }
  Tensor w;
};

/// y = a * x, and + b * x where `use_b`.
class Two : public nn::Module {
 public:
  explicit Two(double a_value = 1, double b_value = 1)
      : a(register_parameter("a", scalar(a_value))), b(register_parameter("b", scalar(b_value))) {}
  Tensor forward(double x) {
    const Tensor y = mul(a, x);
    return use_b ? add(y, mul(b, x)) : y;
  }
  Tensor a;
  Tensor b;
  bool use_b = true;
};

/// y = p0 * x + ... + p(n-1) * x with parameters of `elements` each.
class Many : public nn::Module {
 public:
  Many(std::size_t n, std::int64_t elements) {
    for (std::size_t i = 0; i < n; ++i)
      p.push_back(register_parameter(concat("p", i), ones({elements}, {DType::float32, test_device()})));
  }
  Tensor forward(double x) {
    Tensor y = mul(p[0], x);
    for (std::size_t i = 1; i < p.size(); ++i) y = add(y, mul(p[i], x));
    return y;
  }
  std::vector<Tensor> p;
};

/// Backward with ones.
inline void run_backward(const Tensor& y) { y.backward(ones(y.sizes(), y.options())); }

inline double value_of(const Tensor& tensor) { return tensor.to_vector<double>().at(0); }

template <class M>
parallel::DistributedDataParallel<M> wrap(const std::shared_ptr<M>& module,
                                          const std::shared_ptr<comm::ProcessGroup>& group,
                                          parallel::DDPOptions options = {}) {
  module->to(group->device());
  options.blocking_check = true;  // every rank throws at the end of backward, on any device
  return parallel::DistributedDataParallel<M>(module, group, options);
}

/// One step of plain gradient descent.
inline void descend(const std::vector<Tensor>& parameters, double lr) {
  const NoGradGuard guard;
  for (Tensor parameter : parameters) {
    if (parameter.grad().defined()) parameter.add_(parameter.grad(), -lr);
  }
}

}  // namespace ddp::test
