#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "tensor/cpu/simd.h"

/// The inner loops of matrix product and convolution: a tile of C stays in registers while k runs. Every
/// element of C is summed over k in ascending order by fused multiply-adds whatever the size of the tile,
/// so results do not depend on how C is cut among tiles and threads.
namespace ddp::raw::cpu {

template <class T, int Rows>
struct Tile {
  Vector<T> at[Rows][kTileVectors] = {};

  void multiply_add(int row, T a, const Vector<T> (&b)[kTileVectors]) {
    const Vector<T> spread = a - Vector<T>{};  // keeps the sign of -0, which 0 + a would lose
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) at[row][j] += spread * b[j];
  }
  void write(T* c, std::int64_t row_stride, bool accumulate) const {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) {
        T* to = c + i * row_stride + j * kLanes<T>;
        store_vector<T>(to, accumulate ? load_vector<T>(to) + at[i][j] : at[i][j]);
      }
    }
  }
};

/// C = sum over k of A(:, k) B(k, :), where A is packed [k][Rows] and `b_row(k)` gives kTileColumns elements.
template <class T, int Rows, class BRow>
void multiply_packed(std::int64_t k, const T* a, const BRow& b_row, T* c, std::int64_t row_stride, bool accumulate) {
  Tile<T, Rows> tile;
  for (std::int64_t kk = 0; kk < k; ++kk, a += Rows) {
    const T* from = b_row(kk);
    Vector<T> b[kTileVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) b[j] = load_vector<T>(from + j * kLanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) tile.multiply_add(i, a[i], b);
  }
  tile.write(c, row_stride, accumulate);
}

/// The same with A read where it lies: row i at rows[i], and k running over `outer` x `inner` elements at
/// distances outer_step and inner_step. B is packed [k][kTileColumns].
struct Walk {
  std::int64_t outer = 1;
  std::int64_t inner = 0;
  std::int64_t outer_step = 0;
  std::int64_t inner_step = 1;
};
template <class T, int Rows>
void multiply_rows(const Walk& walk, const T* const* rows, const T* b_panel, T* c, std::int64_t row_stride,
                   bool accumulate) {
  Tile<T, Rows> tile;
  const T* row[Rows];
  for (int i = 0; i < Rows; ++i) row[i] = rows[i];
  for (std::int64_t outer = 0; outer < walk.outer; ++outer) {
    std::int64_t at = outer * walk.outer_step;
    for (std::int64_t inner = 0; inner < walk.inner; ++inner, at += walk.inner_step, b_panel += kTileColumns<T>) {
      Vector<T> b[kTileVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) b[j] = load_vector<T>(b_panel + j * kLanes<T>);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) tile.multiply_add(i, row[i][at], b);
    }
  }
  tile.write(c, row_stride, accumulate);
}

/// Calls f(std::integral_constant<int, rows>) for 1 <= rows <= kTileRows.
template <class F, int... Rows>
void with_rows_of(int rows, F&& f, std::integer_sequence<int, Rows...>) {
  static_cast<void>(((rows == Rows + 1 ? (f(std::integral_constant<int, Rows + 1>{}), true) : false) || ...));
}
template <class F>
void with_rows(int rows, F&& f) {
  with_rows_of(rows, f, std::make_integer_sequence<int, kTileRows>{});
}

/// n rows cut into tiles of nearly equal height, so that no thin tile is left over.
struct RowTiles {
  explicit RowTiles(std::int64_t rows) : rows_(rows), count_((rows + kTileRows - 1) / kTileRows) {}
  std::int64_t count() const { return count_; }
  std::int64_t begin(std::int64_t tile) const { return rows_ * tile / count_; }
  int height(std::int64_t tile) const { return static_cast<int>(begin(tile + 1) - begin(tile)); }

 private:
  std::int64_t rows_;
  std::int64_t count_;
};

}  // namespace ddp::raw::cpu
