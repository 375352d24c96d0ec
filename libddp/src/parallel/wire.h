#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/comm/store.h"
#include "ddp/core/error.h"

/// What ranks tell each other as bytes. Ranks of one job run one build on one kind of machine.
namespace ddp::parallel {

class ByteWriter {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void put(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void put_text(const std::string& text) {
    put<std::uint64_t>(text.size());
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  void put_texts(const std::vector<std::string>& texts) {
    put<std::uint64_t>(texts.size());
    for (const std::string& text : texts) put_text(text);
  }
  const comm::Bytes& bytes() const { return bytes_; }

 private:
  comm::Bytes bytes_;
};

/// Throws CommError when the bytes end too early.
class ByteReader {
 public:
  explicit ByteReader(const comm::Bytes& bytes) : bytes_(bytes) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  std::string get_text() {
    const auto size = get<std::uint64_t>();
    const std::uint8_t* data = take(size);
    return {data, data + size};
  }
  std::vector<std::string> get_texts() {
    std::vector<std::string> texts;
    for (auto left = get<std::uint64_t>(); left > 0; --left) texts.push_back(get_text());
    return texts;
  }

 private:
  const std::uint8_t* take(std::uint64_t size) {
    DDP_CHECK(size <= bytes_.size() - at_, CommError, "a message of ", bytes_.size(), " bytes ends at ", at_,
              ", too early by ", size - (bytes_.size() - at_));
    const std::uint8_t* data = bytes_.data() + at_;
    at_ += size;
    return data;
  }
  const comm::Bytes& bytes_;
  std::size_t at_ = 0;
};

}  // namespace ddp::parallel
