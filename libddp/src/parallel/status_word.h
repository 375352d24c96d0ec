#pragma once

#include <cstdint>
#include <vector>

#include "ddp/tensor/tensor.h"
#include "tensor/status_word.h"

/// A few elements at the end of the last bucket that tell all ranks, with the average of the gradients and
/// without a message of their own, whether the gradients may be used.
///
/// They are averaged in the bucket's dtype, in one of two ways that differ in rounding: the sum divided by the number
/// of ranks, or the sum of numbers that were multiplied by the rounded reciprocal first (NCCL). So nothing depends on
/// an exact result:
/// - Faults are numbers that are 0 when no rank has one: zeros stay zeros, and 1/n is not 0 in any dtype (float16
///   holds it exactly enough up to 16 million ranks), nor does adding numbers of one sign make it 0.
/// - A digest is compared bit by bit as a pair (bit, 1 - bit): if all ranks agree one of the two is zero and the other
///   one is not, if not neither is zero.
/// - The number of ranks that gave up is only told apart as 0, 1 and more: k/n times n is k within 1 % in every dtype.
/// - The rank of a single one is in digits of base 16, since 15 must come back from bfloat16, whose two roundings of
///   2^-9 each leave 15 +- 0.06. Sums of more digits than one rank's mean nothing.
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
  friend bool operator==(const StatusSum&, const StatusSum&) = default;
};

using raw::kStatusElements;

/// Writes it into `word`, a row-major tensor of kStatusElements. Does not block.
void write_status(const Tensor& word, const Status& status, int rank);
/// From the average over `ranks`. Blocks the host on CUDA.
StatusSum read_status(const Tensor& word, int ranks);
/// From what a device has made of it (see tensor/status_word.h).
StatusSum decode_verdict(std::uint32_t verdict);

}  // namespace ddp::parallel
