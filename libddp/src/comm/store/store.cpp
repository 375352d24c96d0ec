#include "ddp/comm/store.h"

#include "comm/store/store_checks.h"
#include "ddp/core/error.h"

namespace ddp::comm {

void check_key(std::string_view key) {
  DDP_CHECK(!key.empty() && key.size() <= kMaxKeyBytes, InvalidArgument, "store key of ", key.size(),
            " bytes; allowed are 1 to ", kMaxKeyBytes);
}

void check_value(std::string_view key, std::span<const std::uint8_t> value) {
  DDP_CHECK(value.size() <= kMaxValueBytes, InvalidArgument, "store value of ", value.size(), " bytes for key '", key,
            "'; at most ", kMaxValueBytes, " are allowed");
}

std::int64_t parse_counter(std::string_view key, std::span<const std::uint8_t> value) {
  const std::string text(value.begin(), value.end());
  std::size_t used = 0;
  std::int64_t number = 0;
  try {
    number = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  DDP_CHECK(used != 0 && used == text.size(), CommError, "store key '", key,
            "' holds something else than the whole number that add needs");
  return number;
}

Bytes to_bytes(std::string_view text) { return {text.begin(), text.end()}; }

void Store::set_text(std::string_view key, std::string_view value) { set(key, to_bytes(value)); }

std::string Store::get_text(std::string_view key, std::chrono::milliseconds timeout, std::source_location where) {
  const Bytes bytes = get(key, timeout, where);
  return {bytes.begin(), bytes.end()};
}

PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : prefix_(std::move(prefix)), store_(std::move(store)) {
  DDP_CHECK(store_ != nullptr, InvalidArgument, "PrefixStore '", prefix_, "' over no store");
}

namespace {

std::string joined(const std::string& prefix, std::string_view key) {
  check_key(key);
  return concat(prefix, key);
}

}  // namespace

void PrefixStore::set(std::string_view key, std::span<const std::uint8_t> value) {
  store_->set(joined(prefix_, key), value);
}

Bytes PrefixStore::get(std::string_view key, std::chrono::milliseconds timeout, std::source_location where) {
  return store_->get(joined(prefix_, key), timeout, where);
}

std::int64_t PrefixStore::add(std::string_view key, std::int64_t amount) {
  return store_->add(joined(prefix_, key), amount);
}

Bytes PrefixStore::set_if_absent(std::string_view key, std::span<const std::uint8_t> value) {
  return store_->set_if_absent(joined(prefix_, key), value);
}

bool PrefixStore::check(std::string_view key) { return store_->check(joined(prefix_, key)); }

bool PrefixStore::erase(std::string_view key) { return store_->erase(joined(prefix_, key)); }

std::string PrefixStore::describe() const { return store_->describe(); }

}  // namespace ddp::comm
