#include <algorithm>

#include "core/thread_pool.h"
#include "tensor/cpu/conv_shape.h"
#include "tensor/cpu/gemm_core.h"
#include "tensor/cpu/scratch.h"

/// Convolution by way of columns (im2col, col2im) for what cpu/conv_shifted.cpp does not cover.
namespace ddp::raw::cpu {
namespace {

// For each output position of one axis whose input position lies inside: f(output, input).
template <class F>
void for_inside(std::int64_t outputs, std::int64_t inputs, std::int64_t stride, std::int64_t shift, F&& f) {
  for (std::int64_t o = 0; o < outputs; ++o) {
    const std::int64_t i = o * stride + shift;
    if (i >= 0 && i < inputs) f(o, i);
  }
}

// Calls f(row of columns, plane, dy, dx) for each tap of a group.
template <class F>
void for_taps(const ConvShape& s, F&& f) {
  std::int64_t row = 0;
  for (std::int64_t c = 0; c < s.group_c(); ++c) {
    for (std::int64_t r = 0; r < s.r; ++r) {
      for (std::int64_t t = 0; t < s.s; ++t, ++row) {
        f(row, c, r * s.params.dilation.h - s.params.padding.h, t * s.params.dilation.w - s.params.padding.w);
      }
    }
  }
}

template <class T>
void to_columns(const ConvShape& s, const T* x, T* columns) {
  std::fill(columns, columns + s.taps() * s.p * s.q, T{});
  for_taps(s, [&](std::int64_t row, std::int64_t c, std::int64_t dy, std::int64_t dx) {
    for_inside(s.p, s.h, s.params.stride.h, dy, [&](std::int64_t p, std::int64_t y) {
      T* to = columns + (row * s.p + p) * s.q;
      const T* from = x + (c * s.h + y) * s.w;
      for_inside(s.q, s.w, s.params.stride.w, dx, [&](std::int64_t q, std::int64_t i) { to[q] = from[i]; });
    });
  });
}

template <class T>
void add_columns(const ConvShape& s, const T* columns, T* x) {
  for_taps(s, [&](std::int64_t row, std::int64_t c, std::int64_t dy, std::int64_t dx) {
    for_inside(s.p, s.h, s.params.stride.h, dy, [&](std::int64_t p, std::int64_t y) {
      const T* from = columns + (row * s.p + p) * s.q;
      T* to = x + (c * s.h + y) * s.w;
      for_inside(s.q, s.w, s.params.stride.w, dx, [&](std::int64_t q, std::int64_t i) { to[i] += from[q]; });
    });
  });
}

// Runs f(image, group, columns buffer) for all images, in parallel.
template <class T, class F>
void for_images(const ConvShape& s, F&& f) {
  core::parallel_for(s.device, s.n, 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch<T> columns(s.taps() * s.p * s.q, s.device);
    for (std::int64_t image = begin; image < end; ++image) {
      for (std::int64_t g = 0; g < s.params.groups; ++g) f(image, g, columns.data());
    }
  });
}

}  // namespace

template <class T>
void conv_forward(const ConvShape& s, const T* x, const T* weight, const T* bias, T* y) {
  if (s.params.stride.h == 1 && s.params.stride.w == 1) {
    conv_shifted(s, x, weight, false, bias, y);
    return;
  }
  const std::int64_t area = s.p * s.q;
  for_images<T>(s, [&](std::int64_t image, std::int64_t g, T* columns) {
    to_columns(s, x + (image * s.c + g * s.group_c()) * s.h * s.w, columns);
    const std::int64_t first = g * s.group_k();
    const GemmOptions<T> options{.row_bias = bias ? bias + first : nullptr};
    gemm<T>(s.device, s.group_k(), area, s.taps(), {weight + first * s.taps(), s.taps(), 1}, {columns, area, 1},
            {y + (image * s.k + first) * area, area, 1}, options);
  });
}

template <class T>
void conv_input_grad(const ConvShape& s, const T* grad, const T* weight, T* x_grad) {
  const ConvParams& params = s.params;
  const Pair padding{params.dilation.h * (s.r - 1) - params.padding.h,
                     params.dilation.w * (s.s - 1) - params.padding.w};
  if (params.stride.h == 1 && params.stride.w == 1 && padding.h >= 0 && padding.w >= 0) {
    ConvShape turned{.n = s.n,
                     .c = s.k,
                     .h = s.p,
                     .w = s.q,
                     .k = s.c,
                     .r = s.r,
                     .s = s.s,
                     .p = s.h,
                     .q = s.w,
                     .params = params,
                     .device = s.device};
    turned.params.padding = padding;
    conv_shifted<T>(turned, grad, weight, true, nullptr, x_grad);
    return;
  }
  const std::int64_t area = s.p * s.q;
  for_images<T>(s, [&](std::int64_t image, std::int64_t g, T* columns) {
    const std::int64_t first = g * s.group_k();
    gemm<T>(s.device, s.taps(), area, s.group_k(), {weight + first * s.taps(), 1, s.taps()},
            {grad + (image * s.k + first) * area, area, 1}, {columns, area, 1});
    T* to = x_grad + (image * s.c + g * s.group_c()) * s.h * s.w;
    std::fill(to, to + s.group_c() * s.h * s.w, T{});
    add_columns(s, columns, to);
  });
}

template void conv_forward<float>(const ConvShape&, const float*, const float*, const float*, float*);
template void conv_forward<double>(const ConvShape&, const double*, const double*, const double*, double*);
template void conv_input_grad<float>(const ConvShape&, const float*, const float*, float*);
template void conv_input_grad<double>(const ConvShape&, const double*, const double*, double*);

}  // namespace ddp::raw::cpu
