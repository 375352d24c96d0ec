#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ddp/comm/store.h"
#include "ddp/core/error.h"

/// Limits and formats that all stores share.
namespace ddp::comm {

inline constexpr std::size_t kMaxKeyBytes = 1024;
inline constexpr std::size_t kMaxValueBytes = std::size_t{64} << 20;

/// The server side of a store is not there any more.
class StoreGone : public CommError {
 public:
  using CommError::CommError;
};

void check_key(std::string_view key);
void check_value(std::string_view key, std::span<const std::uint8_t> value);
/// Counters are kept as decimal text. Throws CommError when the value is none.
std::int64_t parse_counter(std::string_view key, std::span<const std::uint8_t> value);
Bytes to_bytes(std::string_view text);

}  // namespace ddp::comm
