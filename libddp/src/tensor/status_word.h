#pragma once

#include <cstdint>
#include <span>

#include "ddp/tensor/tensor.h"

/// What a reduction over ranks does on a CUDA device to find out, without the host, whether its sums may be used. One
/// launch each on the current stream; nothing blocks. Without CUDA all of it throws NotAvailable.
namespace ddp::raw {

inline constexpr std::int64_t kStatusDigits = 4;
inline constexpr std::int64_t kStatusBase = 16;
inline constexpr std::int64_t kStatusElements = 2 + kStatusDigits + 2 * 32;

/// The kStatusElements numbers, which travel as arguments of the launch, into a contiguous floating-point tensor.
void write_status_word(const Tensor& word, std::span<const float> values);

/// Judges a word that has been averaged over `ranks`; the bits are those of kernels/include/ddp_kernels/status_word.h.
/// `state` is an int32 tensor of at least three elements, `host` from take_host_word; so is `failed`, which may be
/// null: while it is not 0 every verdict is bad.
void judge_status_word(const Tensor& word, int ranks, std::uint32_t pass, const Tensor& state, std::uint64_t* host,
                       const std::uint64_t* failed);

/// 64 bits, at first 0, in page-locked memory that CUDA devices can write and the host reads at any time.
/// Never given back: a launch that is still on its way may write there long after the caller is gone.
std::uint64_t* take_host_word(Device device);

}  // namespace ddp::raw
