#include <condition_variable>
#include <mutex>

#include "comm/store/key_table.h"
#include "core/observer.h"
#include "ddp/comm/store.h"
#include "ddp/core/error.h"

namespace ddp::comm {

struct HashStore::Impl {
  std::mutex mutex;
  std::condition_variable changed;
  KeyTable table;
};

HashStore::HashStore() : impl_(std::make_unique<Impl>()) {}
HashStore::~HashStore() = default;

void HashStore::set(std::string_view key, std::span<const std::uint8_t> value) {
  check_key(key);
  check_value(key, value);
  const std::lock_guard lock(impl_->mutex);
  impl_->table.set(key, value);
  impl_->changed.notify_all();
}

Bytes HashStore::get(std::string_view key, std::chrono::milliseconds timeout, std::source_location where) {
  check_key(key);
  const core::BlockingScope scope("comm::Store::get", Device::cpu(), where);
  std::unique_lock lock(impl_->mutex);
  const Bytes* value = nullptr;
  const bool there = impl_->changed.wait_until(lock, std::chrono::steady_clock::now() + timeout, [&] {
    value = impl_->table.find(key);
    return value != nullptr;
  });
  DDP_CHECK(there, TimeoutError, describe(), ": key '", key, "' was not set within ", timeout.count(), " ms");
  return *value;
}

std::int64_t HashStore::add(std::string_view key, std::int64_t amount) {
  check_key(key);
  const std::lock_guard lock(impl_->mutex);
  const std::int64_t sum = impl_->table.add(key, amount);
  impl_->changed.notify_all();
  return sum;
}

Bytes HashStore::set_if_absent(std::string_view key, std::span<const std::uint8_t> value) {
  check_key(key);
  check_value(key, value);
  const std::lock_guard lock(impl_->mutex);
  const Bytes standing = impl_->table.set_if_absent(key, value);
  impl_->changed.notify_all();
  return standing;
}

bool HashStore::check(std::string_view key) {
  check_key(key);
  const std::lock_guard lock(impl_->mutex);
  return impl_->table.find(key) != nullptr;
}

bool HashStore::erase(std::string_view key) {
  check_key(key);
  const std::lock_guard lock(impl_->mutex);
  return impl_->table.erase(key);
}

std::string HashStore::describe() const { return "HashStore of this process"; }

}  // namespace ddp::comm
