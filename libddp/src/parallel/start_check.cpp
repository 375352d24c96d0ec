#include "parallel/start_check.h"

#include <algorithm>
#include <string_view>

#include "parallel/wire.h"

namespace ddp::parallel {
namespace {

void put_dims(ByteWriter& out, const Dims& dims) {
  out.put<std::uint64_t>(dims.size());
  for (const std::int64_t value : dims) out.put(value);
}

Dims get_dims(ByteReader& in) {
  Dims dims;
  for (auto left = in.get<std::uint64_t>(); left > 0; --left) dims.push_back(in.get<std::int64_t>());
  return dims;
}

void put_tensors(ByteWriter& out, const std::vector<TensorDescription>& tensors) {
  out.put<std::uint64_t>(tensors.size());
  for (const TensorDescription& one : tensors) {
    out.put_text(one.name);
    put_dims(out, one.sizes);
    put_dims(out, one.strides);
    out.put(one.dtype);
    out.put(one.requires_grad);
  }
}

std::vector<TensorDescription> get_tensors(ByteReader& in) {
  std::vector<TensorDescription> tensors(in.get<std::uint64_t>());
  for (TensorDescription& one : tensors) {
    one.name = in.get_text();
    one.sizes = get_dims(in);
    one.strides = get_dims(in);
    one.dtype = in.get<DType>();
    one.requires_grad = in.get<bool>();
  }
  return tensors;
}

comm::Bytes encode(const Description& description) {
  ByteWriter out;
  out.put_text(description.subject);
  out.put_text(description.refusal);
  out.put<std::uint64_t>(description.settings.size());
  for (const auto& [name, value] : description.settings) {
    out.put_text(name);
    out.put_text(value);
  }
  put_tensors(out, description.parameters);
  put_tensors(out, description.buffers);
  return out.bytes();
}

Description decode(const comm::Bytes& bytes) {
  ByteReader in(bytes);
  Description description;
  description.subject = in.get_text();
  description.refusal = in.get_text();
  description.settings.resize(in.get<std::uint64_t>());
  for (auto& [name, value] : description.settings) {
    name = in.get_text();
    value = in.get_text();
  }
  description.parameters = get_tensors(in);
  description.buffers = get_tensors(in);
  return description;
}

std::string both(const std::string& what, int rank_a, const std::string& a, int rank_b, const std::string& b) {
  return concat(what, ": ", a, " on rank ", rank_a, ", ", b, " on rank ", rank_b);
}

std::string shown(const TensorDescription& one) { return concat("'", one.name, "' ", one.sizes, " ", one.dtype); }

std::string tensor_difference(const std::string& kind, std::size_t index, const TensorDescription& a, int rank_a,
                              const TensorDescription& b, int rank_b) {
  if (a.name != b.name) return both(concat(kind, " ", index), rank_a, shown(a), rank_b, shown(b));
  const std::string what = concat(kind, " '", a.name, "'");
  if (!(a.sizes == b.sizes)) {
    return both(concat("sizes of ", what), rank_a, to_string(a.sizes), rank_b, to_string(b.sizes));
  }
  if (a.dtype != b.dtype) {
    return both(concat("dtype of ", what), rank_a, to_string(a.dtype), rank_b, to_string(b.dtype));
  }
  if (!(a.strides == b.strides)) {
    return both(concat("strides of ", what), rank_a, to_string(a.strides), rank_b, to_string(b.strides));
  }
  if (a.requires_grad != b.requires_grad) {
    return both(concat("requires_grad of ", what), rank_a, a.requires_grad ? "true" : "false", rank_b,
                b.requires_grad ? "true" : "false");
  }
  return {};
}

std::string list_difference(const std::string& kind, const std::vector<TensorDescription>& a, int rank_a,
                            const std::vector<TensorDescription>& b, int rank_b) {
  const std::string counts = a.size() == b.size() ? std::string()
                                                  : concat(" (", a.size(), " ", kind, "s on rank ", rank_a, ", ",
                                                           b.size(), " on rank ", rank_b, ")");
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const std::string text = tensor_difference(kind, i, a[i], rank_a, b[i], rank_b);
    if (!text.empty()) return text + counts;
  }
  if (a.size() == b.size()) return {};
  const std::size_t i = std::min(a.size(), b.size());
  const std::string none = "none";
  return both(concat(kind, " ", i), rank_a, i < a.size() ? shown(a[i]) : none, rank_b,
              i < b.size() ? shown(b[i]) : none) +
         counts;
}

}  // namespace

std::string first_difference(const Description& a, int rank_a, const Description& b, int rank_b) {
  if (a.subject != b.subject) return both("what is being built", rank_a, a.subject, rank_b, b.subject);
  std::string text = list_difference("parameter", a.parameters, rank_a, b.parameters, rank_b);
  if (text.empty()) text = list_difference("buffer", a.buffers, rank_a, b.buffers, rank_b);
  for (std::size_t i = 0; text.empty() && i < std::min(a.settings.size(), b.settings.size()); ++i) {
    const auto& [name, value] = a.settings[i];
    if (value != b.settings[i].second) {
      text = both(concat("option ", name), rank_a, value, rank_b, b.settings[i].second);
    }
  }
  return text;
}

void check_same_on_all_ranks(comm::ProcessGroup& group, const Description& mine, std::source_location where) {
  const std::vector<comm::Bytes> all =
      group.all_gather_bytes(encode(mine), {.label = mine.subject + ": comparison of the ranks"}, where);
  std::vector<Description> ranks;
  ranks.reserve(all.size());
  for (const comm::Bytes& bytes : all) ranks.push_back(decode(bytes));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    DDP_CHECK(ranks[rank].refusal.empty(), InvalidArgument, mine.subject, ": rank ", rank,
              " refuses: ", ranks[rank].refusal);
  }
  std::string text;
  std::string also;
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const std::string difference = first_difference(ranks[0], 0, ranks[rank], static_cast<int>(rank));
    if (difference.empty()) continue;
    if (text.empty()) {
      text = difference;
    } else {
      also += concat(also.empty() ? "; from rank 0 differ also ranks " : ", ", rank);
    }
  }
  DDP_CHECK(text.empty(), InvalidArgument, mine.subject, ": the ranks are not the same: ", text, also);
}

}  // namespace ddp::parallel
