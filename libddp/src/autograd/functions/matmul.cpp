#include "autograd/functions/common.h"
#include "tensor/copy.h"
#include "tensor/gemm.h"
#include "tensor/tensor_impl.h"

namespace ddp {

namespace autograd {
namespace {

/// All leading dimensions as one, without a copy where strides allow: [.., n] -> [rows, n].
Tensor as_rows(const Tensor& x) {
  if (x.dim() == 2) return x;
  const std::int64_t columns = x.sizes().back();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < x.sizes().size(); ++i) rows *= x.sizes()[i];
  return raw::reshape(x, {rows, columns});
}

Tensor transposed(const Tensor& x) { return raw::transpose(x, -2, -1); }

/// A vector as a matrix: one row (axis 0) or one column (axis 1).
Tensor as_matrix(const Tensor& x, std::size_t axis) {
  Dims sizes = x.sizes();
  Dims strides = x.strides();
  sizes.insert(axis, 1);
  strides.insert(axis, 0);
  return make_view(x, sizes, strides, x.storage_offset());
}

class MatmulNode final : public Node {
 public:
  MatmulNode(Device device, const Tensor& a, const Tensor& b) : Node(device), a_sizes_(a.sizes()), b_sizes_(b.sizes()) {
    add_edge(a);
    add_edge(b);
    a_ = save_if(needs_input_grad(1), a);
    b_ = save_if(needs_input_grad(0), b);
  }
  std::string_view name() const override { return "matmul"; }

  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    Tensor grad = std::move(grads[0]);
    // Vectors become matrices: a row on the left, a column on the right, and the result gets the dimension
    // back that it lost.
    const bool a_vector = a_sizes_.size() == 1;
    const bool b_vector = b_sizes_.size() == 1;
    if (b_vector) grad = as_matrix(grad, grad.sizes().size());
    if (a_vector) grad = as_matrix(grad, grad.sizes().size() - 1);
    if (needs_input_grad(0)) inputs[0] = left(grad, b_vector, a_vector);
    if (needs_input_grad(1)) inputs[1] = right(grad, a_vector, b_vector);
  }
  void release_saved() override {
    a_.release();
    b_.release();
  }

 private:
  Tensor left(const Tensor& grad, bool b_vector, bool a_vector) {
    Tensor b = b_.get(name());
    if (b_vector) b = as_matrix(b, 1);
    if (!a_vector && grad.sizes().size() == 2 && b.dim() == 2) {
      const Destination into = destination(0);
      return raw::matmul(grad, transposed(b), into.tensor, into.accumulate);
    }
    if (b.dim() == 2) {  // one product for all leading dimensions of a
      return raw::reshape(raw::matmul(as_rows(grad), transposed(b)), a_sizes_);
    }
    Dims sizes = a_sizes_;
    if (a_vector) sizes.insert(0, 1);
    return raw::reshape(raw::sum_to(raw::matmul(grad, transposed(b)), sizes), a_sizes_);
  }
  Tensor right(const Tensor& grad, bool a_vector, bool b_vector) {
    Tensor a = a_.get(name());
    if (a_vector) a = as_matrix(a, 0);
    Dims sizes = b_sizes_;
    if (b_vector) sizes.push_back(1);
    if (sizes.size() == 2 && !b_vector) {  // likewise, and straight into a leaf's gradient
      const Destination into = destination(1);
      return raw::matmul(transposed(as_rows(a)), as_rows(grad), into.tensor, into.accumulate);
    }
    if (sizes.size() == 2) return raw::reshape(raw::matmul(transposed(as_rows(a)), as_rows(grad)), b_sizes_);
    return raw::sum_to(raw::matmul(transposed(a), grad), sizes);
  }

  Dims a_sizes_;
  Dims b_sizes_;
  SavedTensor a_;
  SavedTensor b_;
};

class LinearNode final : public Node {
 public:
  LinearNode(Device device, const Tensor& x, const Tensor& weight, const Tensor& bias)
      : Node(device), x_sizes_(x.sizes()) {
    add_edge(x);
    add_edge(weight);
    add_edge(bias);
    x_ = save_if(needs_input_grad(1), x);
    weight_ = save_if(needs_input_grad(0), weight);
  }
  std::string_view name() const override { return "linear"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    const Tensor grad = as_rows(grads[0]);
    if (needs_input_grad(1) && needs_input_grad(2)) {
      const Destination weight = destination(1);
      const Destination bias = destination(2);
      raw::LinearGrads both = raw::linear_parameter_grads(grad, as_rows(x_.get(name())), weight.tensor,
                                                          weight.accumulate, bias.tensor, bias.accumulate);
      inputs[1] = std::move(both.weight);
      inputs[2] = std::move(both.bias);
    } else if (needs_input_grad(2)) {
      const Destination into = destination(2);
      inputs[2] = raw::sum(grad, {0}, false, into.tensor, into.accumulate);
    } else if (needs_input_grad(1)) {
      const Destination into = destination(1);
      inputs[1] = raw::linear_weight_grad(grad, as_rows(x_.get(name())), into.tensor, into.accumulate);
    }
    if (needs_input_grad(0)) {
      Tensor rows = raw::matmul(grad, weight_.get(name()));
      inputs[0] = rows.sizes() == x_sizes_ ? std::move(rows) : raw::reshape(rows, x_sizes_);
    }
  }
  void release_saved() override {
    x_.release();
    weight_.release();
  }

 private:
  Dims x_sizes_;
  SavedTensor x_;
  SavedTensor weight_;
};

}  // namespace
}  // namespace autograd

Tensor matmul(const Tensor& a, const Tensor& b) {
  Tensor y = raw::matmul(a, b);
  if (autograd::needs_graph({&a, &b})) {
    autograd::set_history(y, make_intrusive<autograd::MatmulNode>(y.device(), a, b));
  }
  return y;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor y = raw::linear(x, weight, bias);
  if (autograd::needs_graph({&x, &weight, &bias})) {
    autograd::set_history(y, make_intrusive<autograd::LinearNode>(y.device(), x, weight, bias));
  }
  return y;
}

}  // namespace ddp
