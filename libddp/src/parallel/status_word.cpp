#include "parallel/status_word.h"

#include <array>
#include <span>

namespace ddp::parallel {
namespace {

constexpr int kRankBase = 128;

}  // namespace

void write_status(const Tensor& word, const Status& status, int rank) {
  std::array<float, kStatusElements> values{};
  values[0] = status.fault ? 1.0F : 0.0F;
  if (status.abandoned) {
    values[1] = 1.0F;
    values[2] = static_cast<float>(rank % kRankBase);
    const int high_digit = rank / kRankBase;
    values[3] = static_cast<float>(high_digit);
  }
  for (std::size_t bit = 0; bit < 32; ++bit) {
    const bool set = ((status.digest >> bit) & 1U) != 0;
    values[4 + 2 * bit] = set ? 1.0F : 0.0F;
    values[5 + 2 * bit] = set ? 0.0F : 1.0F;
  }
  Tensor target = word;
  target.copy_(tensor(std::span<const float>(values), {kStatusElements}));
}

StatusSum read_status(const Tensor& word) {
  const std::vector<float> values = word.to_vector<float>();
  StatusSum sum;
  sum.fault = values[0] != 0;
  sum.abandoned = values[1] == 0 ? 0 : values[1] == 1 ? 1 : 2;
  sum.abandoned_rank = static_cast<int>(values[2]) + kRankBase * static_cast<int>(values[3]);
  for (std::size_t bit = 0; bit < 32; ++bit) {
    sum.differs = sum.differs || (values[4 + 2 * bit] != 0 && values[5 + 2 * bit] != 0);
  }
  return sum;
}

}  // namespace ddp::parallel
