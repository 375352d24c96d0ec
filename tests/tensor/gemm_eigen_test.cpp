// Matrix products held against Eigen's, an independent implementation.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cstdint>
#include <random>

#include "ddp/tensor/random.h"
#include "tensor/copy.h"
#include "tensor/gemm.h"

namespace ddp {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
Matrix<T> as_matrix(const Tensor& x) {
  const Tensor dense = raw::contiguous(x);
  return Eigen::Map<const Matrix<T>>(dense.data_ptr<T>(), dense.size(0), dense.size(1));
}

/// The bound of a product of k terms, summed in any order: |error| <= k * eps * (|a| |b|) elementwise (Higham,
/// Accuracy and Stability of Numerical Algorithms, section 3.5); twice that for two computed results.
template <class T>
void expect_near(const Matrix<T>& ours, const Matrix<T>& a, const Matrix<T>& b) {
  const Matrix<T> reference = a * b;
  const Matrix<T> bound = a.cwiseAbs() * b.cwiseAbs();
  ASSERT_EQ(ours.rows(), reference.rows());
  ASSERT_EQ(ours.cols(), reference.cols());
  const T factor = 2 * static_cast<T>(a.cols() + 1) * std::numeric_limits<T>::epsilon();
  for (Eigen::Index i = 0; i < ours.rows(); ++i) {
    for (Eigen::Index j = 0; j < ours.cols(); ++j) {
      ASSERT_LE(std::abs(ours(i, j) - reference(i, j)), factor * bound(i, j)) << i << ", " << j;
    }
  }
}

template <class T>
void check(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b) {
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " transposed " << transpose_a << transpose_b);
  Generator generator(static_cast<std::uint64_t>(m * 10007 + n * 101 + k));
  const TensorOptions options{.dtype = dtype_of<T>};
  Tensor a =
      transpose_a ? raw::transpose(randn({k, m}, options, &generator), 0, 1) : randn({m, k}, options, &generator);
  Tensor b =
      transpose_b ? raw::transpose(randn({n, k}, options, &generator), 0, 1) : randn({k, n}, options, &generator);
  expect_near<T>(as_matrix<T>(raw::matmul(a, b)), as_matrix<T>(a), as_matrix<T>(b));
}

TEST(GemmAgainstEigen, SizesAroundTheTilesInEveryLayout) {
  std::mt19937 random(7);  // fixed: the same sizes in every run
  std::uniform_int_distribution<std::int64_t> any(1, 130);
  for (int round = 0; round < 40; ++round) {
    const std::int64_t m = any(random);
    const std::int64_t n = any(random);
    const std::int64_t k = any(random);
    check<float>(m, n, k, round % 2 == 1, round % 4 >= 2);
    check<double>(m, n, k, round % 2 == 0, round % 4 >= 2);
  }
}

TEST(GemmAgainstEigen, SizesOfTheBundledModels) {
  check<float>(64, 1024, 784, false, true);
  check<float>(1024, 784, 64, true, false);
  check<float>(64, 9216, 128, false, false);
  check<double>(64, 10, 1024, false, true);
}

}  // namespace
}  // namespace ddp
