#include "arithmetic.cuh"
#include "ddp_kernels/elementwise.h"

namespace ddp::kernels {
namespace {

template <class C>
struct TwoArrays {
  enum class Op : std::uint8_t { add, sub, mul, div, add_scaled };
  Op op;
  C alpha;

  template <int Width>
  __device__ void operator()(const C (&values)[2][Width], C (&results)[Width]) const {
    switch (op) {
      case Op::add:
        return each(values, results, [](C a, C b) { return plus(a, b); });
      case Op::sub:
        return each(values, results, [](C a, C b) { return minus(a, b); });
      case Op::mul:
        return each(values, results, [](C a, C b) { return times(a, b); });
      case Op::add_scaled:
        return each(values, results, [scale = alpha](C a, C b) { return plus(a, times(scale, b)); });
      case Op::div:
        if constexpr (!std::is_integral_v<C>) each(values, results, [](C a, C b) { return a / b; });
        return;
    }
  }
};

template <class C>
struct WithScalar {
  enum class Op : std::uint8_t { add, sub, reversed_sub, mul, div, reversed_div };
  Op op;
  C scalar;

  template <int Width>
  __device__ void operator()(const C (&values)[1][Width], C (&results)[Width]) const {
    const C s = scalar;
    switch (op) {
      case Op::add:
        return each(values, results, [s](C v) { return plus(v, s); });
      case Op::sub:
        return each(values, results, [s](C v) { return minus(v, s); });
      case Op::reversed_sub:
        return each(values, results, [s](C v) { return minus(s, v); });
      case Op::mul:
        return each(values, results, [s](C v) { return times(v, s); });
      case Op::div:
        if constexpr (!std::is_integral_v<C>) each(values, results, [s](C v) { return v / s; });
        return;
      case Op::reversed_div:
        if constexpr (!std::is_integral_v<C>) each(values, results, [s](C v) { return s / v; });
        return;
    }
  }
};

template <class C>
constexpr typename WithScalar<C>::Op scalar_op(Binary op, bool reversed) {
  using Op = typename WithScalar<C>::Op;
  switch (op) {
    case Binary::add:
      return Op::add;
    case Binary::sub:
      return reversed ? Op::reversed_sub : Op::sub;
    case Binary::mul:
      return Op::mul;
    default:
      return reversed ? Op::reversed_div : Op::div;
  }
}

}  // namespace

cudaError_t binary(Binary op, const Array& out, const ConstArray& a, const ConstArray& b, const Sizes& sizes, Type type,
                   cudaStream_t stream) {
  if (op == Binary::div && type > Type::bfloat16) return cudaErrorInvalidValue;
  const ConstArray* const in[] = {&a, &b};
  return with_numeric(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using Body = TwoArrays<Compute<T>>;
    return launch_map<T, T>(out, in, sizes, Body{static_cast<typename Body::Op>(op), {}}, stream);
  });
}

cudaError_t add_scaled(const Array& out, const ConstArray& a, const ConstArray& b, double alpha, const Sizes& sizes,
                       Type type, cudaStream_t stream) {
  const ConstArray* const in[] = {&a, &b};
  return with_numeric(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    using Body = TwoArrays<C>;
    const auto op = alpha == 1 ? Body::Op::add : Body::Op::add_scaled;
    return launch_map<T, T>(out, in, sizes, Body{op, Convert<C, double>::apply(alpha)}, stream);
  });
}

cudaError_t binary_scalar(Binary op, const Array& out, const ConstArray& x, double scalar, bool reversed,
                          const Sizes& sizes, Type type, cudaStream_t stream) {
  if (op == Binary::div && type > Type::bfloat16) return cudaErrorInvalidValue;
  const ConstArray* const in[] = {&x};
  return with_numeric(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    const WithScalar<C> body{scalar_op<C>(op, reversed), Convert<C, double>::apply(scalar)};
    return launch_map<T, T>(out, in, sizes, body, stream);
  });
}

}  // namespace ddp::kernels
