#include "parallel/status_word.h"

#include <array>
#include <cmath>
#include <span>

namespace ddp::parallel {
namespace {

constexpr std::size_t kFault = 0;
constexpr std::size_t kAbandoned = 1;
constexpr std::size_t kRank = 2;
constexpr std::size_t kDigest = kRank + raw::kStatusDigits;

}  // namespace

void write_status(const Tensor& word, const Status& status, int rank) {
  std::array<float, kStatusElements> values{};
  values[kFault] = status.fault ? 1.0F : 0.0F;
  if (status.abandoned) {
    values[kAbandoned] = 1.0F;
    auto left = rank;
    for (std::size_t digit = 0; digit < raw::kStatusDigits; ++digit) {
      values[kRank + digit] = static_cast<float>(left % raw::kStatusBase);
      left /= raw::kStatusBase;
    }
  }
  for (std::size_t bit = 0; bit < 32; ++bit) {
    const bool set = ((status.digest >> bit) & 1U) != 0;
    values[kDigest + 2 * bit] = set ? 1.0F : 0.0F;
    values[kDigest + 2 * bit + 1] = set ? 0.0F : 1.0F;
  }
  if (word.device().is_cuda()) {
    raw::write_status_word(word, values);
    return;
  }
  Tensor target = word;
  target.copy_(tensor(std::span<const float>(values), {kStatusElements}));
}

StatusSum read_status(const Tensor& word, int ranks) {
  const std::vector<float> values = word.to_vector<float>();
  StatusSum sum;
  sum.fault = values[kFault] != 0;
  const auto times_ranks = [&](std::size_t i) {
    return static_cast<int>(std::lround(values[i] * static_cast<float>(ranks)));
  };
  if (values[kAbandoned] != 0) {
    sum.abandoned = times_ranks(kAbandoned) == 1 ? 1 : 2;
    if (sum.abandoned == 1) {
      for (std::size_t digit = raw::kStatusDigits; digit-- > 0;) {
        sum.abandoned_rank = sum.abandoned_rank * static_cast<int>(raw::kStatusBase) + times_ranks(kRank + digit);
      }
    }
  }
  for (std::size_t bit = 0; bit < 32; ++bit) {
    sum.differs = sum.differs || (values[kDigest + 2 * bit] != 0) == (values[kDigest + 2 * bit + 1] != 0);
  }
  return sum;
}

StatusSum decode_verdict(std::uint32_t verdict) {
  return {.fault = (verdict & 1U) != 0,
          .differs = (verdict & 2U) != 0,
          .abandoned = static_cast<int>((verdict >> 2U) & 3U),
          .abandoned_rank = static_cast<int>(verdict >> 8U)};
}

}  // namespace ddp::parallel
