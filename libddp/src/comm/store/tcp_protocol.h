#pragma once

#include <array>
#include <cstdint>
#include <cstring>

/// What TCPStore and TCPStoreServer say to each other. Numbers are little-endian.
///
/// On connection each side sends kHello. Then the client sends requests, one at a time, and gets one reply each:
///   request: operation (1 byte), key length (4), value length (4), number (8), key, value
///   reply:   status (1 byte), value length (4), number (8), value
/// `number` is the amount of add, or milliseconds a get waits; in a reply the sum of add, or 0/1.
namespace ddp::comm::protocol {

inline constexpr std::array<char, 8> kHello = {'d', 'd', 'p', 's', 't', 'o', 'r', '1'};

enum class Operation : std::uint8_t { set = 1, get, add, set_if_absent, check, erase };
enum class Status : std::uint8_t { ok = 0, timeout, refused };

inline constexpr std::size_t kRequestBytes = 17;
inline constexpr std::size_t kReplyBytes = 13;

template <class T>
void put(std::uint8_t* to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    to[i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(value) >> (8 * i));
}

template <class T>
T take(const std::uint8_t* from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return static_cast<T>(value);
}

}  // namespace ddp::comm::protocol
