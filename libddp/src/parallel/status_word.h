#pragma once

#include <cstdint>
#include <vector>

#include "ddp/tensor/tensor.h"

/// A few elements at the end of the last bucket that tell all ranks, with the sum of the gradients and
/// without a message of their own, whether the gradients may be used.
///
/// They are summed in the bucket's dtype. So that any dtype and any number of ranks do, nothing depends on
/// an exact sum, but for the rank of a single rank that gave up: its digits are below 128, exact even in
/// bfloat16. Faults are numbers that are zero when no rank has one. A digest is compared bit by bit as a
/// pair (bit, 1 - bit): if all ranks agree one of the two sums is zero, if not neither is.
namespace ddp::parallel {

/// What one rank says.
struct Status {
  bool fault = false;        // details follow by an exchange in which every rank takes part
  bool abandoned = false;    // this rank ended the pass early and takes part in nothing more of it
  std::uint32_t digest = 0;  // of what must be equal: plan, pass, active slots
};

/// What all ranks have said.
struct StatusSum {
  bool fault = false;
  bool differs = false;    // digests are not all equal
  int abandoned = 0;       // 0: none; 1: exactly one; 2: two or more
  int abandoned_rank = 0;  // meaningful for exactly one
  bool healthy() const { return !fault && !differs && abandoned == 0; }
};

inline constexpr std::int64_t kStatusElements = 4 + 2 * 32;

/// Writes it into `word`, a row-major tensor of kStatusElements.
void write_status(const Tensor& word, const Status& status, int rank);
/// Blocks the host on CUDA.
StatusSum read_status(const Tensor& word);

}  // namespace ddp::parallel
