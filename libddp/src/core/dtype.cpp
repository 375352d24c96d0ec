#include "ddp/core/dtype.h"

#include <array>

#include "ddp/core/error.h"

namespace ddp {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::string_view other_name;
  std::size_t bytes;
};
constexpr std::array<Entry, 8> kEntries = {{
    {DType::float32, "float32", "float", 4},
    {DType::float64, "float64", "double", 8},
    {DType::float16, "float16", "half", 2},
    {DType::bfloat16, "bfloat16", "bf16", 2},
    {DType::int32, "int32", "int", 4},
    {DType::int64, "int64", "long", 8},
    {DType::uint8, "uint8", "byte", 1},
    {DType::boolean, "bool", "boolean", 1},
}};

}  // namespace

std::size_t size_of(DType dtype) { return kEntries[static_cast<std::size_t>(dtype)].bytes; }

std::string_view name(DType dtype) { return kEntries[static_cast<std::size_t>(dtype)].name; }

DType parse_dtype(std::string_view text) {
  std::string allowed;
  for (const Entry& entry : kEntries) {
    if (text == entry.name || text == entry.other_name) return entry.dtype;
    allowed += allowed.empty() ? "" : ", ";
    allowed += entry.name;
  }
  detail::fail<InvalidArgument>("unknown dtype '", text, "'; allowed: ", allowed);
}

}  // namespace ddp
