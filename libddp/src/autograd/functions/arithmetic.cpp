#include "autograd/functions/common.h"
#include "tensor/copy.h"
#include "tensor/elementwise.h"

namespace ddp {

namespace autograd {
namespace {

using raw::Binary;

class AddNode final : public Node {
 public:
  AddNode(Device device, const Tensor& a, const Tensor& b, bool subtract)
      : Node(device), a_(a.sizes()), b_(b.sizes()), subtract_(subtract) {
    add_edge(a);
    add_edge(b);
  }
  std::string_view name() const override { return subtract_ ? "sub" : "add"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    Tensor grad = std::move(grads[0]);
    if (needs_input_grad(1)) {
      if (subtract_) {
        Tensor sum = unbroadcast(grad, b_);  // summed first: there is less to negate
        inputs[1] = raw::unary(raw::Unary::neg, sum);
      } else {
        inputs[1] = unbroadcast(grad, b_, grad.sizes() == b_ ? Destination{} : destination(1));
      }
    }
    if (needs_input_grad(0)) {
      const Destination into = grad.sizes() == a_ ? Destination{} : destination(0);
      inputs[0] = unbroadcast(std::move(grad), a_, into);
    }
  }

 private:
  Dims a_;
  Dims b_;
  bool subtract_;
};

class MulNode final : public Node {
 public:
  MulNode(Device device, const Tensor& a, const Tensor& b) : Node(device), a_sizes_(a.sizes()), b_sizes_(b.sizes()) {
    add_edge(a);
    add_edge(b);
    a_ = save_if(needs_input_grad(1), a);
    b_ = save_if(needs_input_grad(0), b);
  }
  std::string_view name() const override { return "mul"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    if (needs_input_grad(0)) inputs[0] = product(grads[0], b_.get(name()), a_sizes_, 0);
    if (needs_input_grad(1)) inputs[1] = product(grads[0], a_.get(name()), b_sizes_, 1);
  }
  void release_saved() override {
    a_.release();
    b_.release();
  }

 private:
  Tensor product(const Tensor& grad, const Tensor& other, const Dims& sizes, std::size_t i) {
    const Destination into = destination(i);
    if (grad.sizes() == sizes) {
      return raw::binary(Binary::mul, grad, other, into.accumulate ? Tensor() : into.tensor);
    }
    return unbroadcast(raw::binary(Binary::mul, grad, other), sizes, into);
  }
  Dims a_sizes_;
  Dims b_sizes_;
  SavedTensor a_;
  SavedTensor b_;
};

class DivNode final : public Node {
 public:
  DivNode(Device device, const Tensor& a, const Tensor& b) : Node(device), a_sizes_(a.sizes()), b_sizes_(b.sizes()) {
    add_edge(a);
    add_edge(b);
    a_ = save_if(needs_input_grad(1), a);
    b_ = SavedTensor(b);
  }
  std::string_view name() const override { return "div"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    const Tensor& b = b_.get(name());
    if (needs_input_grad(0)) {
      inputs[0] = unbroadcast(raw::binary(Binary::div, grads[0], b), a_sizes_, destination(0));
    }
    if (needs_input_grad(1)) {
      inputs[1] = unbroadcast(raw::div_grad_b(grads[0], a_.get(name()), b), b_sizes_, destination(1));
    }
  }
  void release_saved() override {
    a_.release();
    b_.release();
  }

 private:
  Dims a_sizes_;
  Dims b_sizes_;
  SavedTensor a_;
  SavedTensor b_;
};

/// scalar / x.
class ReciprocalNode final : public Node {
 public:
  ReciprocalNode(const Tensor& x, double scalar) : Node(x.device()), x_(x), scalar_(scalar) { add_edge(x); }
  std::string_view name() const override { return "div"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    const Tensor& x = x_.get(name());
    inputs[0] = raw::div_grad_b(grads[0], raw::expand(full({}, scalar_, x.options()), x.sizes()), x);
  }
  void release_saved() override { x_.release(); }

 private:
  SavedTensor x_;
  double scalar_;
};

template <class N, class... Args>
Tensor binary(Binary op, const Tensor& a, const Tensor& b, Args... args) {
  Tensor y = raw::binary(op, a, b);
  if (needs_graph({&a, &b})) set_history(y, make_intrusive<N>(y.device(), a, b, args...));
  return y;
}

Tensor same(Tensor grad) { return grad; }

}  // namespace
}  // namespace autograd

using raw::Binary;

Tensor add(const Tensor& a, const Tensor& b) { return autograd::binary<autograd::AddNode>(Binary::add, a, b, false); }
Tensor sub(const Tensor& a, const Tensor& b) { return autograd::binary<autograd::AddNode>(Binary::sub, a, b, true); }
Tensor mul(const Tensor& a, const Tensor& b) { return autograd::binary<autograd::MulNode>(Binary::mul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return autograd::binary<autograd::DivNode>(Binary::div, a, b); }

Tensor add(const Tensor& a, double b) {
  return autograd::record(raw::binary_scalar(Binary::add, a, b), a, "add", autograd::same);
}

Tensor sub(const Tensor& a, double b) {
  return autograd::record(raw::binary_scalar(Binary::sub, a, b), a, "sub", autograd::same);
}

Tensor mul(const Tensor& a, double b) {
  return autograd::record(raw::binary_scalar(Binary::mul, a, b), a, "mul",
                          [b](const Tensor& grad) { return raw::binary_scalar(Binary::mul, grad, b); });
}

Tensor div(const Tensor& a, double b) {
  return autograd::record(raw::binary_scalar(Binary::div, a, b), a, "div",
                          [b](const Tensor& grad) { return raw::binary_scalar(Binary::div, grad, b); });
}

Tensor operator-(double a, const Tensor& b) {
  return autograd::record(raw::binary_scalar(Binary::sub, b, a, true), b, "sub",
                          [](const Tensor& grad) { return raw::unary(raw::Unary::neg, grad); });
}

Tensor operator/(double a, const Tensor& b) {
  Tensor y = raw::binary_scalar(Binary::div, b, a, true);
  if (autograd::needs_graph({&b})) autograd::set_history(y, make_intrusive<autograd::ReciprocalNode>(b, a));
  return y;
}

Tensor neg(const Tensor& x) {
  return autograd::record(raw::unary(raw::Unary::neg, x), x, "neg",
                          [](const Tensor& grad) { return raw::unary(raw::Unary::neg, grad); });
}

}  // namespace ddp
