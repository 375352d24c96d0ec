#include "comm/signature.h"

#include <algorithm>

namespace ddp::comm {

bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
}

bool is_rooted(CollectiveKind kind) {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
}

bool is_point_to_point(CollectiveKind kind) { return kind == CollectiveKind::send || kind == CollectiveKind::recv; }

std::vector<std::int64_t> unit_elements(const Collective& collective) {
  const bool rows_in_input = collective.kind == CollectiveKind::all_gather ||
                             collective.kind == CollectiveKind::gather || collective.kind == CollectiveKind::send;
  const auto& tensors = rows_in_input ? collective.inputs : collective.outputs;
  std::vector<std::int64_t> elements;
  elements.reserve(tensors.size());
  for (const Tensor& tensor : tensors) elements.push_back(tensor.numel());
  return elements;
}

DType dtype_of_collective(const Collective& collective) {
  if (!collective.outputs.empty() && collective.outputs.front().defined()) return collective.outputs.front().dtype();
  if (!collective.inputs.empty() && collective.inputs.front().defined()) return collective.inputs.front().dtype();
  return DType::uint8;
}

Outline outline(const Collective& collective) {
  Outline result{
      .kind = collective.kind, .op = collective.op, .dtype = dtype_of_collective(collective), .root = collective.root};
  const auto elements = unit_elements(collective);
  result.tensors = elements.size();
  std::copy_n(elements.begin(), std::min(elements.size(), result.elements.size()), result.elements.begin());
  return result;
}

std::string describe(const Outline& outline) {
  // A message has two ends with different kinds; both must read the same.
  std::string text = is_point_to_point(outline.kind) ? "message" : to_string(outline.kind);
  if (is_reduction(outline.kind)) text += concat("(", outline.op, ")");
  if (is_rooted(outline.kind)) text += concat("(root ", outline.root, ")");
  if (outline.kind == CollectiveKind::barrier) return text;
  text += " of ";
  if (outline.tensors == 1) {
    text += std::to_string(outline.elements.front());
  } else {
    text += concat(outline.tensors, " tensors [");
    for (std::size_t i = 0; i < std::min(outline.tensors, outline.elements.size()); ++i) {
      text += concat(i == 0 ? "" : ", ", outline.elements[i]);
    }
    text += outline.tensors > outline.elements.size() ? ", ...]" : "]";
  }
  return text + concat(" x ", name(outline.dtype));
}

std::string describe(const Collective& collective) { return describe(outline(collective)); }

std::string title(const Collective& collective) {
  std::string text = to_string(collective.kind);
  if (is_point_to_point(collective.kind)) {
    text += concat(collective.kind == CollectiveKind::send ? " to rank " : " from rank ", collective.root, " tag ",
                   collective.tag);
  } else {
    text += concat(" #", collective.sequence);
    if (collective.options.lane != 0) text += concat(" on lane ", collective.options.lane);
  }
  if (!collective.options.label.empty()) text += concat(" (", collective.options.label, ")");
  return text;
}

namespace {

// Finaliser of SplitMix64: every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t signature_hash(const Collective& collective) {
  const bool message = is_point_to_point(collective.kind);
  std::uint64_t hash = mix(message ? 255U : static_cast<std::uint64_t>(collective.kind));
  if (is_reduction(collective.kind)) hash = mix(hash ^ (1U + static_cast<std::uint64_t>(collective.op)));
  if (is_rooted(collective.kind)) hash = mix(hash ^ (16U + static_cast<std::uint64_t>(collective.root)));
  hash = mix(hash ^ static_cast<std::uint64_t>(dtype_of_collective(collective)));
  for (const std::int64_t elements : unit_elements(collective)) hash = mix(hash ^ static_cast<std::uint64_t>(elements));
  return hash;
}

}  // namespace ddp::comm
