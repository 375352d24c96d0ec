#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "ddp/core/error.h"

namespace ddp {

/// Sizes or strides of a tensor: up to 8 numbers, kept inline so that making one never allocates.
class Dims {
 public:
  static constexpr std::size_t kMaxRank = 8;

  constexpr Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  Dims(std::span<const std::int64_t> values) {  // NOLINT(google-explicit-constructor)
    for (const std::int64_t value : values) push_back(value);
  }
  static Dims filled(std::size_t rank, std::int64_t value) {
    Dims dims;
    for (std::size_t i = 0; i < rank; ++i) dims.push_back(value);
    return dims;
  }

  constexpr std::size_t size() const { return rank_; }
  constexpr bool empty() const { return rank_ == 0; }
  constexpr std::int64_t operator[](std::size_t i) const { return values_[i]; }
  constexpr std::int64_t& operator[](std::size_t i) { return values_[i]; }
  constexpr std::int64_t front() const { return values_[0]; }
  constexpr std::int64_t back() const { return values_[rank_ - 1]; }
  constexpr const std::int64_t* begin() const { return values_; }
  constexpr const std::int64_t* end() const { return values_ + rank_; }
  constexpr std::int64_t* begin() { return values_; }
  constexpr std::int64_t* end() { return values_ + rank_; }

  void push_back(std::int64_t value) {
    DDP_CHECK(rank_ < kMaxRank, InvalidArgument, "a tensor has at most ", kMaxRank, " dimensions");
    values_[rank_++] = value;
  }
  void pop_back() { --rank_; }
  void erase(std::size_t at) {
    std::copy(values_ + at + 1, values_ + rank_, values_ + at);
    --rank_;
  }
  void insert(std::size_t at, std::int64_t value) {
    push_back(value);
    std::rotate(values_ + at, values_ + rank_ - 1, values_ + rank_);
  }

  /// Product of all numbers, 1 for none.
  constexpr std::int64_t product() const {
    std::int64_t result = 1;
    for (std::size_t i = 0; i < rank_; ++i) result *= values_[i];
    return result;
  }

  friend constexpr bool operator==(const Dims& a, const Dims& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::int64_t values_[kMaxRank] = {};
  std::size_t rank_ = 0;
};

/// "[2, 3]".
std::string to_string(const Dims& dims);
/// Row-major strides of these sizes, in elements.
Dims contiguous_strides(const Dims& sizes);
/// Sizes of the broadcast of both, by NumPy's rule. Throws InvalidArgument that shows both.
Dims broadcast_sizes(const Dims& a, const Dims& b);
/// `dim` in [-rank, rank) as an index from the front. Throws InvalidArgument that gives the range.
std::size_t wrap_dim(std::int64_t dim, std::size_t rank);

}  // namespace ddp
