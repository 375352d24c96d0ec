#include "core/env.h"

#include <charconv>
#include <cstdlib>
#include <system_error>

#include "ddp/core/error.h"

namespace ddp::core {

std::optional<std::string> env_string(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): the library never changes the environment
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::int64_t parse_int(std::string_view what, std::string_view text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] =
      std::from_chars(text.data(), end, value);  // NOLINT(bugprone-suspicious-stringview-data-usage)
  DDP_CHECK(status == std::errc() && stop == end && value >= low && value <= high, InvalidArgument, what, " is '", text,
            "'; allowed: a whole number from ", low, " to ", high);
  return value;
}

std::optional<std::int64_t> env_int(const char* name, std::int64_t low, std::int64_t high) {
  const auto text = env_string(name);
  if (!text) return std::nullopt;
  return parse_int(name, *text, low, high);
}

}  // namespace ddp::core
