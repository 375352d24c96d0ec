#pragma once

#include <algorithm>
#include <cstdint>

namespace ddp::raw::cpu {

/// A copy of an image's planes with the padding as zeros in memory. The zeros right of a row are those left of
/// the next one, so a row takes `row` elements and element (y, x) of the padded plane is at y * row + x even
/// for x up to w + 2 * pad_w.
struct Frame {
  std::int64_t h, w, pad_h, pad_w;
  std::int64_t row;    // distance of rows
  std::int64_t plane;  // distance of planes

  /// `row_at_least`: also the distance that rows must have; `reach`: elements of a plane that may be read.
  Frame(std::int64_t height, std::int64_t width, std::int64_t padding_h, std::int64_t padding_w,
        std::int64_t row_at_least, std::int64_t reach)
      : h(height), w(width), pad_h(padding_h), pad_w(padding_w), row(std::max(width + padding_w, row_at_least)) {
    plane = std::max((h + 2 * pad_h) * row + pad_w, reach);
    plane = (plane + 15) / 16 * 16;
    // Planes at a distance of a multiple of 4 KiB would all fall into the same sets of the first-level cache.
    if (plane % 512 == 0) plane += 16;
  }

  /// `planes` planes, once: fill() leaves the zeros alone.
  template <class T>
  void clear(T* to, std::int64_t planes) const {
    std::fill(to, to + planes * plane, T{});
  }
  template <class T>
  void fill(const T* from, std::int64_t planes, T* to) const {
    for (std::int64_t c = 0; c < planes; ++c, from += h * w) {
      T* first = to + c * plane + pad_h * row + pad_w;
      if (row == w) {
        std::copy(from, from + h * w, first);
        continue;
      }
      for (std::int64_t y = 0; y < h; ++y) std::copy(from + y * w, from + (y + 1) * w, first + y * row);
    }
  }
};

}  // namespace ddp::raw::cpu
