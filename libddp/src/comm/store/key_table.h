#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/store/store_checks.h"

namespace ddp::comm {

/// The values of a store in memory; whoever owns it locks.
class KeyTable {
 public:
  void set(std::string_view key, std::span<const std::uint8_t> value) {
    values_.insert_or_assign(std::string(key), Bytes(value.begin(), value.end()));
  }
  const Bytes* find(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  std::int64_t add(std::string_view key, std::int64_t amount) {
    const Bytes* old = find(key);
    const std::int64_t sum = (old != nullptr ? parse_counter(key, *old) : 0) + amount;
    set(key, to_bytes(std::to_string(sum)));
    return sum;
  }
  const Bytes& set_if_absent(std::string_view key, std::span<const std::uint8_t> value) {
    return values_.try_emplace(std::string(key), value.begin(), value.end()).first->second;
  }
  bool erase(std::string_view key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    values_.erase(found);
    return true;
  }
  void clear() { values_.clear(); }
  const std::map<std::string, Bytes, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, Bytes, std::less<>> values_;
};

}  // namespace ddp::comm
