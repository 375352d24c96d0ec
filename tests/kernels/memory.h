#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ddp/core/dtype.h"
#include "ddp_kernels/types.h"

/// What the tests that call kernels directly share: device memory, and arguments from plain numbers.
namespace ddp::test {

namespace k = ddp::kernels;

inline constexpr DType kTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                                   DType::int32,   DType::int64,   DType::uint8,   DType::boolean};

inline k::Type type_of(DType dtype) { return static_cast<k::Type>(dtype); }

inline k::Sizes sizes(std::initializer_list<std::int64_t> values) {
  k::Sizes result;
  for (const std::int64_t value : values) result.sizes[result.rank++] = value;
  return result;
}
inline k::Strided strides(std::initializer_list<std::int64_t> values) {
  k::Strided result;
  int at = 0;
  for (const std::int64_t value : values) result.strides[at++] = value;
  return result;
}

/// Device memory of `elements` elements with bytes of 0xA5 as poison.
class Memory {
 public:
  Memory(DType dtype, std::size_t elements) : bytes_(elements * ddp::size_of(dtype)), dtype_(dtype) {
    EXPECT_EQ(cudaMalloc(&data_, bytes_), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0xA5, bytes_), cudaSuccess);
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  void* at(std::size_t element) const { return static_cast<char*>(data_) + element * ddp::size_of(dtype_); }

  /// As a kernel's argument, from element `from` on.
  k::Array array(const k::Strided& strides, std::size_t from = 0) const { return {at(from), strides}; }
  k::ConstArray input(const k::Strided& strides, std::size_t from = 0) const { return {at(from), strides}; }

  template <class T>
  void write(const std::vector<T>& values) {
    ASSERT_LE(values.size() * sizeof(T), bytes_);
    ASSERT_EQ(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyDefault), cudaSuccess);
  }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    EXPECT_EQ(cudaMemcpy(values.data(), data_, bytes_, cudaMemcpyDefault), cudaSuccess);
    return values;
  }
  /// The elements as double. Exact for the small numbers of these tests.
  std::vector<double> numbers() const {
    std::vector<double> result;
    const auto bytes = read<std::uint8_t>();
    for (std::size_t i = 0; i < bytes.size(); i += ddp::size_of(dtype_)) result.push_back(number(&bytes[i]));
    return result;
  }
  void write_numbers(const std::vector<double>& values) {
    std::vector<std::uint8_t> bytes(values.size() * ddp::size_of(dtype_));
    for (std::size_t i = 0; i < values.size(); ++i) store(values[i], &bytes[i * ddp::size_of(dtype_)]);
    write(bytes);
  }

 private:
  template <class T>
  static T load(const std::uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  double number(const std::uint8_t* from) const {
    switch (dtype_) {
      case DType::float32:
        return load<float>(from);
      case DType::float64:
        return load<double>(from);
      case DType::float16:
        return static_cast<double>(static_cast<float>(load<Half>(from)));
      case DType::bfloat16:
        return static_cast<double>(static_cast<float>(load<BFloat16>(from)));
      case DType::int32:
        return load<std::int32_t>(from);
      case DType::int64:
        return static_cast<double>(load<std::int64_t>(from));
      default:
        return *from;
    }
  }
  template <class T>
  static void put(T value, std::uint8_t* to) {
    std::memcpy(to, &value, sizeof value);
  }
  void store(double value, std::uint8_t* to) const {
    switch (dtype_) {
      case DType::float32:
        return put(static_cast<float>(value), to);
      case DType::float64:
        return put(value, to);
      case DType::float16:
        return put(Half(static_cast<float>(value)), to);
      case DType::bfloat16:
        return put(BFloat16(static_cast<float>(value)), to);
      case DType::int32:
        return put(static_cast<std::int32_t>(value), to);
      case DType::int64:
        return put(static_cast<std::int64_t>(value), to);
      case DType::uint8:
        return put(static_cast<std::uint8_t>(value), to);
      case DType::boolean:
        return put(static_cast<std::uint8_t>(value != 0 ? 1 : 0), to);
    }
  }

  std::size_t bytes_;
  DType dtype_;
  void* data_ = nullptr;
};

}  // namespace ddp::test
