#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// The status word of a reduction: written from the launch's arguments, judged when it has been averaged over the
/// ranks, without the host. Both queue one launch on `stream` of the current device and never block; they return its
/// error, or cudaErrorInvalidValue for a type that is not floating point.
namespace ddp::kernels {

/// Where things lie in the word: see ddp/parallel's status_word.h, which gives the reasons.
inline constexpr int kStatusFault = 0;
inline constexpr int kStatusAbandoned = 1;
inline constexpr int kStatusRank = 2;
inline constexpr int kStatusDigits = 4;
inline constexpr int kStatusBase = 16;
inline constexpr int kStatusDigest = kStatusRank + kStatusDigits;
inline constexpr int kStatusLength = kStatusDigest + 2 * 32;

struct StatusWord {
  float values[kStatusLength] = {};
};

/// word[i] = values[i], converted to the type.
cudaError_t write_status_word(void* word, Type type, const StatusWord& values, cudaStream_t stream);

/// What the ranks have said, as bits: 0 a fault, 1 digests differ, 2 and 3 how many gave up (0, 1, 2 for more), 8 to 31
/// the rank of the one that did. 0: all is well.
///
/// `state` are three words of the device: [0] the verdict that holds, [1] and [2] the first bad one and its pass.
/// A bad verdict holds until somebody clears the three. `host`, 64 bits that the device can write, becomes
/// pass * 2^32 + verdict, of the first bad pass or else of this one. `failed`, which may be null, is a word that the
/// host writes while the launch waits: not 0 is a fault as well.
cudaError_t judge_status_word(const void* word, Type type, int ranks, std::uint32_t pass, std::uint32_t* state,
                              std::uint64_t* host, const std::uint64_t* failed, cudaStream_t stream);

}  // namespace ddp::kernels
