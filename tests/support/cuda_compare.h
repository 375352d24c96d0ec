#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <source_location>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ddp/core/error.h"
#include "support/layouts.h"
#include "support/poison.h"
#include "tensor/copy.h"

/// Runs an operation on the CPU and on cuda:0 and compares the results (in namespace ddp, using ddp::test):
///
///   TEST(CudaRelu, AsOnTheCpu) {
///     compare_cuda("relu", {{{5, 33}}}, [](const auto& in) { return raw::unary(raw::Unary::relu, in[0]); });
///     compare_cuda("row lookup", {{{9, 4}}, {.sizes = {7}, .low = 0, .high = 9, .dtype = DType::int64}},
///                  [](const auto& in) { return raw::index_rows(in[0], in[1]); });
///     compare_cuda_grad("gelu", {{{5, 33}}}, [](const auto& in) { return ddp::gelu(in[0]); });
///   }
///
/// `op` gets the inputs and returns a Tensor or a std::vector<Tensor>; an operation that works in place returns
/// what it changed, and marks that input as `written`. It is run for every dtype and layout of the options, with
/// fresh random inputs, memory around the inputs and below the outputs poisoned. An empty case is another call
/// with a 0 among the sizes. What is checked:
///  - sizes and dtypes of the results; inputs that are not `written`, and everything around them, are unchanged;
///  - floating point: error / max |reference| <= 1e-10 (float64), 1e-5 (float32), 2e-2 (bfloat16), 4e-3 (float16),
///    the wider of the tolerances of tested dtype and result dtype. The reference is computed by the CPU in
///    float64 from the rounded inputs, so `op` must not name a dtype where that would change its meaning. NaN and
///    infinities must be at the same places;
///  - whole numbers and bool: ==;
///  - a second run gives the same bits (row-major inputs).
namespace ddp::test {

enum class CudaLayout : std::uint8_t {
  row_major,
  offset,      // row-major three elements behind an aligned address: no vector loads
  transposed,  // column-major
  sliced,      // every second element, from an odd offset
  rows,        // stride 0 along the first dimension: one row repeated
  columns,     // stride 0 along the last dimension
  mixed,       // each input in another one of these
};
inline const std::vector<CudaLayout> kCudaLayouts = {CudaLayout::row_major, CudaLayout::offset, CudaLayout::transposed,
                                                     CudaLayout::sliced,    CudaLayout::rows,   CudaLayout::columns,
                                                     CudaLayout::mixed};

inline const char* name_of(CudaLayout layout) {
  constexpr const char* kNames[] = {"row-major", "odd offset", "transposed", "sliced", "rows", "columns", "mixed"};
  return kNames[static_cast<std::size_t>(layout)];
}

struct CudaInput {
  Dims sizes;
  double low = -1.0;  ///< random in [low, high), whole numbers for such a dtype
  double high = 1.0;
  std::optional<DType> dtype = {};  ///< of this input whatever dtype is tested (indices, masks)
  bool written = false;             ///< the operation writes it: no stride 0
  bool specials = false;            ///< some elements are NaN, infinite, 0 and -0
  bool row_major = false;           ///< no other layout (an operation that does not take them)
};

struct CudaCompare {
  std::vector<DType> dtypes = {DType::float64, DType::float32, DType::bfloat16};
  std::vector<CudaLayout> layouts = kCudaLayouts;
  double tolerance = 0;  ///< instead of the dtype's, with a reason at the caller
  bool wide = true;      ///< false: the reference is computed in the tested dtype, for operations bound to it
  bool repeatable = true;
  std::uint64_t seed = 1;
  Device device = Device::cuda(0);  ///< compared with cpu:0
};

using CudaOp = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

namespace cuda_compare_detail {

/// Random numbers in host memory of some layout.
struct Prepared {
  Tensor base;  // 1-d, host
  Dims sizes;
  Dims strides;
  std::int64_t offset = 0;

  Tensor view() const { return make_view(base, sizes, strides, offset); }
};

inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-10;
    case DType::float32:
      return 1e-5;
    case DType::bfloat16:
      return 2e-2;
    case DType::float16:
      return 4e-3;
    default:
      return 0;
  }
}

inline Prepared prepare(const CudaInput& input, DType dtype, CudaLayout layout, std::uint64_t seed) {
  Prepared result;
  const std::size_t rank = input.sizes.size();
  if (rank == 0 || input.row_major) layout = layout == CudaLayout::offset ? layout : CudaLayout::row_major;
  if (input.written && (layout == CudaLayout::rows || layout == CudaLayout::columns)) layout = CudaLayout::row_major;
  result.sizes = input.sizes;
  result.strides = contiguous_strides(input.sizes);
  std::int64_t room = input.sizes.product();
  switch (layout) {
    case CudaLayout::offset:
      result.offset = 3;
      room += 5;
      break;
    case CudaLayout::transposed: {
      std::int64_t stride = 1;
      for (std::size_t d = 0; d < rank; ++d) {
        result.strides[d] = stride;
        stride *= std::max<std::int64_t>(input.sizes[d], 1);
      }
      break;
    }
    case CudaLayout::sliced:
      for (std::int64_t& stride : result.strides) stride *= 2;
      result.offset = 1;
      room = room * 2 + 3;
      break;
    case CudaLayout::rows:
    case CudaLayout::columns: {
      const std::size_t repeated = layout == CudaLayout::rows ? 0 : rank - 1;
      Dims once = input.sizes;
      once[repeated] = std::min<std::int64_t>(once[repeated], 1);
      result.strides = contiguous_strides(once);
      result.strides[repeated] = 0;
      break;
    }
    default:
      break;
  }
  const bool floating = is_floating_point(dtype);
  std::vector<double> values(static_cast<std::size_t>(room),
                             floating ? std::numeric_limits<double>::quiet_NaN() : 113.0);
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(input.low, input.high);
  for_each_element(result.sizes, result.strides, [&](std::int64_t, std::int64_t at) {
    double value = uniform(engine);
    if (!floating) value = std::floor(value);
    if (dtype == DType::boolean) value = value > (input.low + input.high) / 2 - 0.75 ? 1 : 0;
    values[static_cast<std::size_t>(result.offset + at)] = value;
  });
  if (input.specials && floating) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const double special[] = {std::nan(""), kInf, -kInf, 0.0, -0.0};
    std::size_t which = seed % 5;
    for_each_element(result.sizes, result.strides, [&](std::int64_t i, std::int64_t at) {
      if (i % 7 == 3) values[static_cast<std::size_t>(result.offset + at)] = special[which++ % 5];
    });
  }
  const Tensor numbers = ddp::tensor(values, {room});
  result.base = raw::to(numbers, dtype);
  return result;
}

/// Freed blocks as large as the results that are about to be made, filled with 0xff.
inline void poison_results(const std::vector<std::int64_t>& result_bytes, Device device) {
  std::vector<Tensor> blocks;
  for (const std::int64_t bytes : result_bytes) {
    for (int copy = 0; copy < 3; ++copy) blocks.push_back(full({bytes}, 255, {DType::uint8, device}));
  }
}

inline std::string where_in(const Dims& sizes, std::int64_t i) {
  Dims index = sizes;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    index[d] = i % sizes[d];
    i /= sizes[d];
  }
  return to_string(index);
}

/// What differs between a result and its reference, or nothing.
inline std::string difference(const Tensor& got, const Tensor& reference, double tolerance) {
  if (!(got.sizes() == reference.sizes())) {
    return concat("sizes are ", got.sizes(), ", on the CPU ", reference.sizes());
  }
  if (!is_floating_point(got.dtype())) {
    if (got.dtype() != reference.dtype()) return concat("dtype is ", got.dtype(), ", on the CPU ", reference.dtype());
    const auto a = got.to_vector<std::int64_t>();
    const auto b = reference.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) {
        return concat("element ", i, " ", where_in(got.sizes(), static_cast<std::int64_t>(i)), " is ", a[i],
                      ", on the CPU ", b[i]);
      }
    }
    return {};
  }
  if (!is_floating_point(reference.dtype()))
    return concat("dtype is ", got.dtype(), ", on the CPU ", reference.dtype());
  const auto a = got.to_vector<double>();
  const auto b = reference.to_vector<double>();
  // What is beyond the range of the result's dtype must be infinite there.
  const auto rounded = raw::to(reference, got.dtype()).to_vector<double>();
  double largest = 0;
  for (const double value : b) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  double worst = 0;
  std::string first;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double error = 0;
    if (std::isfinite(a[i]) && std::isfinite(rounded[i])) {
      error = std::fabs(a[i] - b[i]);
    } else if (!(a[i] == rounded[i] || (std::isnan(a[i]) && std::isnan(rounded[i])))) {
      error = std::numeric_limits<double>::infinity();
    }
    worst = std::max(worst, error);
    if (first.empty() && error > tolerance * largest) {
      std::ostringstream text;
      text.precision(17);
      text << "element " << i << " " << where_in(got.sizes(), static_cast<std::int64_t>(i)) << " is " << a[i]
           << ", on the CPU " << b[i];
      first = text.str();
    }
  }
  if (first.empty()) return {};
  return concat(first, "; worst error / max |reference| = ", worst / largest, " (max ", largest, ", allowed ",
                tolerance, ")");
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  const Tensor x = raw::contiguous(raw::to(a, Device::cpu()));
  const Tensor y = raw::contiguous(raw::to(b, Device::cpu()));
  return x.nbytes() == y.nbytes() &&
         (x.nbytes() == 0 || std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.nbytes())) == 0);
}

/// Runs on copies of the inputs on the device, and checks that the inputs' memory is left alone.
inline std::vector<Tensor> run_on(Device gpu, const std::vector<Prepared>& prepared,
                                  const std::vector<CudaInput>& inputs, const CudaOp& op,
                                  const std::vector<std::int64_t>& result_bytes, std::string& complaint) {
  std::vector<Tensor> bases;
  std::vector<Tensor> views;
  for (const Prepared& p : prepared) {
    bases.push_back(raw::to(p.base, gpu));
    views.push_back(make_view(bases.back(), p.sizes, p.strides, p.offset));
  }
  poison_results(result_bytes, gpu);
  std::vector<Tensor> results = op(views);
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    const Tensor after = raw::to(bases[i], Device::cpu());
    const Tensor before = raw::clone(prepared[i].base);
    if (inputs[i].written) {  // only what is around it
      raw::fill_(make_view(after, prepared[i].sizes, prepared[i].strides, prepared[i].offset), 0);
      raw::fill_(make_view(before, prepared[i].sizes, prepared[i].strides, prepared[i].offset), 0);
    }
    if (!same_bytes(after, before)) {
      complaint = concat("memory ", inputs[i].written ? "around" : "of", " input ", i, " was changed");
    }
  }
  return results;
}

using TypedOp = std::function<std::vector<Tensor>(const std::vector<Tensor>&, DType)>;

inline void compare_one(const std::string& what, const std::vector<CudaInput>& inputs, const TypedOp& typed_op,
                        const CudaCompare& options, DType dtype, CudaLayout layout) {
  std::vector<Prepared> prepared;
  std::vector<Tensor> host;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const DType own = inputs[i].dtype.value_or(dtype);
    const CudaLayout chosen = layout == CudaLayout::mixed ? kCudaLayouts[(2 * i + 1) % 6] : layout;
    prepared.push_back(prepare(inputs[i], own, chosen, options.seed * 1000 + i));
    const bool widen = options.wide && is_floating_point(own);
    host.push_back(raw::clone(widen ? raw::to(prepared.back().view(), DType::float64) : prepared.back().view()));
  }
  const CudaOp op = [&](const std::vector<Tensor>& in) { return typed_op(in, dtype); };
  const std::vector<Tensor> reference = op(host);
  const bool narrow = is_floating_point(dtype);
  std::vector<std::int64_t> result_bytes;
  for (const Tensor& r : reference) {
    const DType there = narrow && is_floating_point(r.dtype()) ? dtype : r.dtype();
    result_bytes.push_back(r.numel() * static_cast<std::int64_t>(size_of(there)));
  }
  std::string complaint;
  const std::vector<Tensor> got = run_on(options.device, prepared, inputs, op, result_bytes, complaint);
  EXPECT_EQ(complaint, "") << what;
  ASSERT_EQ(got.size(), reference.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double tolerance = std::max(tolerance_of(dtype), tolerance_of(got[i].dtype()));
    const std::string text = difference(got[i], reference[i], options.tolerance > 0 ? options.tolerance : tolerance);
    EXPECT_TRUE(text.empty()) << what << ", result " << i << " " << to_string(got[i].sizes()) << ": " << text;
  }
  if (!options.repeatable || layout != CudaLayout::row_major) return;
  const std::vector<Tensor> again = run_on(options.device, prepared, inputs, op, result_bytes, complaint);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(same_bytes(got[i], again[i])) << what << ", result " << i << ": a second run differs";
  }
}

inline void compare_all(std::string_view name, const std::vector<CudaInput>& inputs, const TypedOp& op,
                        const CudaCompare& options) {
  poison_pool(options.device);
  for (const DType dtype : options.dtypes) {
    for (const CudaLayout layout : options.layouts) {
      std::string what = concat(name, ", ", dtype, ", ", name_of(layout), ", inputs");
      for (const CudaInput& input : inputs) what += concat(" ", input.sizes);
      try {
        compare_one(what, inputs, op, options, dtype, layout);
      } catch (const Error& error) {
        ADD_FAILURE() << what << ": " << error.what();
      }
    }
  }
}

}  // namespace cuda_compare_detail

/// See the top of this file.
template <class F>
void compare_cuda(std::string_view name, const std::vector<CudaInput>& inputs, const F& op,
                  const CudaCompare& options = {}, std::source_location where = std::source_location::current()) {
  const testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), std::string(name));
  const cuda_compare_detail::TypedOp typed = [&op](const std::vector<Tensor>& in, DType) {
    if constexpr (std::is_same_v<decltype(op(in)), Tensor>) {
      return std::vector<Tensor>{op(in)};
    } else {
      return op(in);
    }
  };
  cuda_compare_detail::compare_all(name, inputs, typed, options);
}

/// Compares a differentiable function `op` (inputs to one Tensor) and the gradients of all its inputs of the
/// tested dtype, from a gradient of its result that is the same random numbers on both sides.
template <class F>
void compare_cuda_grad(std::string_view name, const std::vector<CudaInput>& inputs, const F& op,
                       const CudaCompare& options = {}, std::source_location where = std::source_location::current()) {
  const testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), std::string(name));
  const cuda_compare_detail::TypedOp typed = [&](const std::vector<Tensor>& in, DType dtype) {
    std::vector<Tensor> leaves;
    for (std::size_t i = 0; i < in.size(); ++i) {
      leaves.push_back(in[i].detach());
      if (!inputs[i].dtype) leaves.back().set_requires_grad();
    }
    const Tensor y = op(leaves);
    const Tensor numbers = ddp::tensor(random_values(y.numel(), -1, 1, options.seed + 77), y.sizes());
    y.backward(raw::to(raw::to(raw::to(numbers, dtype), y.dtype()), y.device()));
    std::vector<Tensor> results{y.detach()};
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (inputs[i].dtype) continue;
      EXPECT_TRUE(leaves[i].grad().defined()) << name << ": input " << i << " got no gradient";
      if (leaves[i].grad().defined()) results.push_back(leaves[i].grad());
    }
    return results;
  };
  cuda_compare_detail::compare_all(name, inputs, typed, options);
}

}  // namespace ddp::test
