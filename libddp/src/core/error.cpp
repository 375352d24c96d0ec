#include "ddp/core/error.h"

#include <charconv>
#include <system_error>

namespace ddp {

namespace {

template <class T>
void append_shortest(std::string& out, T value) {
  char buffer[32];
  const auto [end, status] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out.append(buffer, status == std::errc() ? end : buffer);
}

}  // namespace

namespace detail {

void append(std::string& out, double value) { append_shortest(out, value); }
void append(std::string& out, float value) { append_shortest(out, value); }

}  // namespace detail

std::string to_string(const std::source_location& where) {
  const std::string_view path = where.file_name();
  const std::size_t slash = path.rfind('/');
  return concat(slash == std::string_view::npos ? path : path.substr(slash + 1), ":", where.line());
}

}  // namespace ddp
