#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Typed reading of environment variables. Errors name the variable, quote the value and give the range.
namespace ddp::core {

/// Unset gives nothing; set but empty gives an empty string.
std::optional<std::string> env_string(const char* name);
/// Unset gives nothing. Anything but a whole decimal number in [low, high] throws InvalidArgument.
std::optional<std::int64_t> env_int(const char* name, std::int64_t low, std::int64_t high);
/// A decimal number in [low, high] from text; `what` is how the error calls it ("MASTER_PORT").
std::int64_t parse_int(std::string_view what, std::string_view text, std::int64_t low, std::int64_t high);

}  // namespace ddp::core
