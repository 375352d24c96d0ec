#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

/// Vectors of the machine's width through the compilers' vector extension, for GEMM and convolution.
namespace ddp::raw::cpu {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

/// Elements of T in a vector.
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

/// Any alignment. The copy through memcpy becomes one unaligned move.
template <class T>
inline Vector<T> load_vector(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
template <class T>
inline void store_vector(T* to, Vector<T> v) {
  std::memcpy(to, &v, sizeof(v));
}

// Register tile of the GEMM kernels: kTileRows x kTileVectors accumulators, plus one vector of B per column
// and a broadcast element of A, must fit the register file: 32 registers with AVX-512, 16 else.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 14;
#else
inline constexpr int kTileRows = 6;
#endif
inline constexpr int kTileVectors = 2;
template <class T>
inline constexpr int kTileColumns = kTileVectors * kLanes<T>;

}  // namespace ddp::raw::cpu
