#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/thread_pool.h"
#include "ddp/tensor/tensor.h"
#include "tensor/cpu/element.h"

/// Loops over strided tensors without temporaries: dimensions are ordered and merged as far as the strides
/// of all operands allow, then rows of the innermost one are handed to a function, in parallel pieces.
namespace ddp::raw::cpu {

/// Elements per parallel piece; below it an operation stays on the caller.
inline constexpr std::int64_t kGrain = 32768;

/// Common shape of N operands after merging. Strides are in bytes; the last dimension is the innermost.
template <std::size_t N>
struct LoopPlan {
  std::size_t rank = 0;
  std::int64_t numel = 1;
  std::array<std::int64_t, Dims::kMaxRank> sizes{};
  std::array<std::array<std::int64_t, N>, Dims::kMaxRank> strides{};
  std::array<char*, N> base{};
};

/// Operand 0 decides the order of dimensions (its smallest stride goes innermost), later operands break ties.
/// All operands must have the same sizes. With `keep_order` dimensions stay as they are and are merged only.
template <std::size_t N>
LoopPlan<N> make_plan(const std::array<const Tensor*, N>& operands, bool keep_order = false) {
  LoopPlan<N> plan;
  const Dims& sizes = operands[0]->sizes();
  for (std::size_t k = 0; k < N; ++k) plan.base[k] = static_cast<char*>(operands[k]->data());
  plan.numel = operands[0]->numel();
  if (plan.numel == 0) return plan;

  std::size_t rank = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    std::array<std::int64_t, N> strides{};
    for (std::size_t k = 0; k < N; ++k) {
      strides[k] = operands[k]->strides()[d] * static_cast<std::int64_t>(size_of(operands[k]->dtype()));
    }
    // Insertion sort, outermost first: few dimensions, and nearly always in order already.
    std::size_t at = rank++;
    while (!keep_order && at > 0 && plan.strides[at - 1] < strides) {
      plan.strides[at] = plan.strides[at - 1];
      plan.sizes[at] = plan.sizes[at - 1];
      --at;
    }
    plan.strides[at] = strides;
    plan.sizes[at] = sizes[d];
  }
  // Merge a dimension into the one outside it where all operands allow it.
  for (std::size_t d = 0; d < rank; ++d) {
    bool merge = plan.rank > 0;
    for (std::size_t k = 0; merge && k < N; ++k) {
      merge = plan.strides[plan.rank - 1][k] == plan.strides[d][k] * plan.sizes[d];
    }
    if (merge) {
      plan.sizes[plan.rank - 1] *= plan.sizes[d];
      plan.strides[plan.rank - 1] = plan.strides[d];
    } else {
      plan.sizes[plan.rank] = plan.sizes[d];
      plan.strides[plan.rank] = plan.strides[d];
      ++plan.rank;
    }
  }
  if (plan.rank == 0) {  // one element
    plan.rank = 1;
    plan.sizes[0] = 1;
    plan.strides[0] = {};
  }
  return plan;
}

/// Calls row(pointers, strides, count) for the innermost runs that make up elements [begin, end) of the plan.
template <std::size_t N, class Row>
void for_rows(const LoopPlan<N>& plan, std::int64_t begin, std::int64_t end, Row&& row) {
  if (begin >= end) return;
  const std::size_t inner = plan.rank - 1;
  std::array<std::int64_t, Dims::kMaxRank> index{};
  std::array<char*, N> pointers = plan.base;
  std::int64_t rest = begin;
  for (std::size_t d = plan.rank; d-- > 0;) {
    index[d] = rest % plan.sizes[d];
    rest /= plan.sizes[d];
    for (std::size_t k = 0; k < N; ++k) pointers[k] += index[d] * plan.strides[d][k];
  }
  std::int64_t left = end - begin;
  while (true) {
    std::int64_t count = plan.sizes[inner] - index[inner];
    if (count > left) count = left;
    row(pointers, plan.strides[inner], count);
    left -= count;
    if (left == 0) return;
    for (std::size_t k = 0; k < N; ++k) pointers[k] -= index[inner] * plan.strides[inner][k];
    index[inner] = 0;
    for (std::size_t d = inner; d-- > 0;) {
      for (std::size_t k = 0; k < N; ++k) pointers[k] += plan.strides[d][k];
      if (++index[d] < plan.sizes[d]) break;
      for (std::size_t k = 0; k < N; ++k) pointers[k] -= plan.sizes[d] * plan.strides[d][k];
      index[d] = 0;
    }
  }
}

/// The same over all elements on the threads of `device`.
template <std::size_t N, class Row>
void parallel_rows(Device device, const LoopPlan<N>& plan, Row&& row) {
  if (plan.numel == 0) return;
  core::parallel_for(device, plan.numel, kGrain,
                     [&](std::int64_t begin, std::int64_t end) { for_rows(plan, begin, end, row); });
}

namespace loop_detail {

template <class Out, class... In, class F, std::size_t... I>
void map_row(const std::array<char*, sizeof...(In) + 1>& p, const std::array<std::int64_t, sizeof...(In) + 1>& s,
             std::int64_t n, F& f, std::index_sequence<I...>) {
  auto* out = reinterpret_cast<Out*>(p[0]);
  const bool dense_out = s[0] == sizeof(Out);
  if (dense_out && ((s[I + 1] == sizeof(In)) && ...)) {
    DDP_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < n; ++i) out[i] = store<Out>(f(load(reinterpret_cast<const In*>(p[I + 1])[i])...));
    return;
  }
  if constexpr (sizeof...(In) == 2) {  // one side broadcast along the row
    using A = std::tuple_element_t<0, std::tuple<In...>>;
    using B = std::tuple_element_t<1, std::tuple<In...>>;
    const auto* a = reinterpret_cast<const A*>(p[1]);
    const auto* b = reinterpret_cast<const B*>(p[2]);
    if (dense_out && s[1] == sizeof(A) && s[2] == 0) {
      const auto right = load(*b);
      DDP_INDEPENDENT_ITERATIONS
      for (std::int64_t i = 0; i < n; ++i) out[i] = store<Out>(f(load(a[i]), right));
      return;
    }
    if (dense_out && s[1] == 0 && s[2] == sizeof(B)) {
      const auto left = load(*a);
      DDP_INDEPENDENT_ITERATIONS
      for (std::int64_t i = 0; i < n; ++i) out[i] = store<Out>(f(left, load(b[i])));
      return;
    }
  }
  char* to = p[0];
  std::array<const char*, sizeof...(In)> from{p[I + 1]...};
  for (std::int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<Out*>(to) = store<Out>(f(load(*reinterpret_cast<const In*>(from[I]))...));
    to += s[0];
    ((from[I] += s[I + 1]), ...);
  }
}

}  // namespace loop_detail

/// out[i] = f(in[i]...) in the compute type, for every element; an input may be the output itself.
template <class Out, class... In, class F, class... Tensors>
void map(const Tensor& out, F f, const Tensors&... in) {
  static_assert(sizeof...(In) == sizeof...(Tensors));
  const auto plan = make_plan<sizeof...(In) + 1>({&out, &in...});
  parallel_rows(out.device(), plan, [&](const auto& pointers, const auto& strides, std::int64_t n) {
    loop_detail::map_row<Out, In...>(pointers, strides, n, f, std::index_sequence_for<In...>{});
  });
}

}  // namespace ddp::raw::cpu
