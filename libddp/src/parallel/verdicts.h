#pragma once

#include <chrono>
#include <cstdint>
#include <source_location>

#include "ddp/comm/work.h"
#include "parallel/bucket_set.h"
#include "parallel/status_word.h"

namespace ddp::parallel {

/// What a CUDA device finds about the passes of a reducer, and how the host hears of it without waiting.
///
/// After the last sum of a pass a tiny launch turns the averaged status word into a verdict: a word of the device,
/// which forbids the optimisers' updates (Storage::refusal of all buckets), and a copy in page-locked memory. A bad
/// verdict holds, whatever the passes after it say, until `clear`: ranks notice it at different points of their
/// programs, and none of them must change its parameters meanwhile.
class Verdicts {
 public:
  struct Verdict {
    std::uint32_t pass = 0;
    bool bad = false;
    StatusSum status;
  };

  explicit Verdicts(Device device);

  /// All buckets of the set are refused as long as the verdict is bad.
  void guard(const BucketSet& set) const;
  void guard(const Tensor& memory) const;
  /// Takes that away.
  static void release(const BucketSet& set);

  /// Queues the verdict on a pass, after what the current stream has so far. Bad, whatever the word says, while
  /// `failed` is not 0 (ProcessGroup::failure_word).
  void judge(const Tensor& word, int ranks, std::uint32_t pass, const std::uint64_t* failed = nullptr);
  /// Later work of that stream comes after the verdict, which was queued on the current stream.
  void extend_to(StreamView stream) const;
  /// The newest verdict that the device has told, or the first bad one. Does not block.
  Verdict look() const;
  /// Blocks the host until the pass, whose last sum is `sum`, or one before it down to `after` has got a bad verdict or
  /// the pass a good one. Throws what makes the sum fail, and TimeoutError.
  Verdict wait(std::uint32_t pass, std::uint32_t after, const comm::Work& sum, std::chrono::milliseconds timeout,
               std::source_location where) const;

  /// Forbids updates from here on in the current stream.
  void refuse();
  /// Allows them again, from here on in the current stream.
  void clear();

 private:
  Tensor state_;
  std::uint64_t* host_;
};

}  // namespace ddp::parallel
