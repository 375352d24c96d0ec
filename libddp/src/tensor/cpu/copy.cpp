#include <algorithm>
#include <cstring>

#include "tensor/backend/copy_backend.h"
#include "tensor/cpu/convert.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/dispatch.h"

namespace ddp::raw {

namespace {

// Calls function(TypeTag<U>) with an unsigned type as wide as an element: moving bits needs no more.
template <class F>
void by_width(DType dtype, F&& function) {
  switch (size_of(dtype)) {
    case 1:
      return function(TypeTag<std::uint8_t>{});
    case 2:
      return function(TypeTag<std::uint16_t>{});
    case 4:
      return function(TypeTag<std::uint32_t>{});
    default:
      return function(TypeTag<std::uint64_t>{});
  }
}

template <class U>
void copy_row(const std::array<char*, 2>& p, const std::array<std::int64_t, 2>& s, std::int64_t n) {
  constexpr std::int64_t kWidth = sizeof(U);
  auto* to = reinterpret_cast<U*>(p[0]);
  const auto* from = reinterpret_cast<const U*>(p[1]);
  if (s[0] == kWidth && s[1] == kWidth) {
    std::memcpy(to, from, static_cast<std::size_t>(n * kWidth));
  } else if (s[0] == kWidth && s[1] == 0) {
    std::fill_n(to, n, *from);
  } else {
    const std::int64_t to_step = s[0] / kWidth;
    const std::int64_t from_step = s[1] / kWidth;
    for (std::int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
  }
}

// The last two dimensions are a transposition: the source runs along the outer of them. Square tiles keep
// both sides in the first cache level.
constexpr std::int64_t kTile = 32;

template <class U>
void copy_tiles(Device device, const cpu::LoopPlan<2>& plan) {
  constexpr std::int64_t kWidth = sizeof(U);
  const std::size_t rows_at = plan.rank - 2;
  const std::size_t columns_at = plan.rank - 1;
  const std::int64_t rows = plan.sizes[rows_at];
  const std::int64_t columns = plan.sizes[columns_at];
  const std::int64_t bands = (rows + kTile - 1) / kTile;
  cpu::LoopPlan<2> outer = plan;  // the dimensions outside, one "element" a matrix
  outer.rank = plan.rank - 2;
  outer.numel = plan.numel / (rows * columns);
  if (outer.rank == 0) {
    outer.rank = 1;
    outer.sizes[0] = 1;
    outer.strides[0] = {};
  }
  const std::int64_t to_row = plan.strides[rows_at][0] / kWidth;
  const std::int64_t to_column = plan.strides[columns_at][0] / kWidth;
  const std::int64_t from_row = plan.strides[rows_at][1] / kWidth;
  const std::int64_t from_column = plan.strides[columns_at][1] / kWidth;
  const auto band = [&](char* to_base, const char* from_base, std::int64_t which) {
    auto* to = reinterpret_cast<U*>(to_base);
    const auto* from = reinterpret_cast<const U*>(from_base);
    const std::int64_t row_end = std::min(rows, (which + 1) * kTile);
    for (std::int64_t c0 = 0; c0 < columns; c0 += kTile) {
      const std::int64_t column_end = std::min(columns, c0 + kTile);
      for (std::int64_t r = which * kTile; r < row_end; ++r) {
        for (std::int64_t c = c0; c < column_end; ++c)
          to[r * to_row + c * to_column] = from[r * from_row + c * from_column];
      }
    }
  };
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::kGrain / (kTile * columns));
  core::parallel_for(device, outer.numel * bands, grain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t matrix = begin / bands;
      const std::int64_t stop = std::min(end, (matrix + 1) * bands);
      cpu::for_rows(outer, matrix, matrix + 1, [&](const auto& pointers, const auto&, std::int64_t) {
        for (std::int64_t i = begin; i < stop; ++i) band(pointers[0], pointers[1], i - matrix * bands);
      });
      begin = stop;
    }
  });
}

class CpuCopy : public CopyBackend {
 public:
  void fill(const Tensor& x, double value) override {
    dispatch_all("fill_", x.dtype(), [&]<class T>(TypeTag<T>) {
      const T element = cpu::store<T>(value);
      const auto plan = cpu::make_plan<1>({&x});
      cpu::parallel_rows(x.device(), plan, [&](const auto& p, const auto& s, std::int64_t n) {
        auto* to = reinterpret_cast<T*>(p[0]);
        if (s[0] == sizeof(T)) {
          std::fill_n(to, n, element);
        } else {
          const std::int64_t step = s[0] / static_cast<std::int64_t>(sizeof(T));
          for (std::int64_t i = 0; i < n; ++i) to[i * step] = element;
        }
      });
    });
  }

  void copy(const Tensor& destination, const Tensor& source) override {
    if (destination.dtype() != source.dtype()) {
      if (is_floating_point(destination.dtype())) {
        cpu::convert_to_floating(destination, source);
      } else {
        cpu::convert_to_integral(destination, source);
      }
      return;
    }
    by_width(destination.dtype(), [&]<class U>(TypeTag<U>) {
      const auto plan = cpu::make_plan<2>({&destination, &source});
      const std::size_t last = plan.rank - 1;
      if (plan.rank >= 2 && plan.strides[last][1] != sizeof(U) && plan.strides[last - 1][1] == sizeof(U) &&
          plan.sizes[last] > 4 && plan.sizes[last - 1] > 4) {
        copy_tiles<U>(destination.device(), plan);
      } else {
        cpu::parallel_rows(destination.device(), plan,
                           [](const auto& p, const auto& s, std::int64_t n) { copy_row<U>(p, s, n); });
      }
    });
  }

  void index_rows(const Tensor& x, const Tensor& index, const Tensor& out) override {
    const std::int64_t rows = x.sizes()[0];
    const std::int64_t row_bytes = x.nbytes() / std::max<std::int64_t>(rows, 1);
    const auto* from = static_cast<const char*>(x.data());
    auto* to = static_cast<char*>(out.data());
    const auto* which = index.data_ptr<std::int64_t>();
    const std::int64_t step = index.strides()[0];
    const std::int64_t count = index.numel();
    for (std::int64_t i = 0; i < count; ++i) {
      DDP_CHECK(which[i * step] >= 0 && which[i * step] < rows, InvalidArgument, "index_rows: index ", which[i * step],
                " at position ", i, "; allowed: 0 to ", rows - 1);
    }
    const std::int64_t grain = std::max<std::int64_t>(1, 4 * cpu::kGrain / std::max<std::int64_t>(row_bytes, 1));
    core::parallel_for(x.device(), count, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::memcpy(to + i * row_bytes, from + which[i * step] * row_bytes, static_cast<std::size_t>(row_bytes));
      }
    });
  }
};

}  // namespace

CopyBackend& cpu_copy() {
  static CpuCopy backend;
  return backend;
}

}  // namespace ddp::raw
