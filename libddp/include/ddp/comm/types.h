#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

/// Words of collective communication shared by all groups.
namespace ddp::comm {

/// `average`: the sum divided by the number of ranks; floating-point tensors only, others are an InvalidArgument. On
/// CPU groups and in-process ones the complete sum is divided; NCCL may scale each number first.
enum class ReduceOp : std::uint8_t { sum, min, max, product, average };
std::string to_string(ReduceOp op);

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  barrier,
};
/// "all_reduce", ...
std::string to_string(CollectiveKind kind);

/// A text made once and shared by its copies, so that to label a collective costs no memory.
class Label {
 public:
  Label() = default;
  Label(std::string text)  // NOLINT(google-explicit-constructor): a text where a label is wanted
      : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  Label(const char* text) : Label(std::string(text)) {}  // NOLINT(google-explicit-constructor)

  bool empty() const { return text_ == nullptr; }
  const std::string& text() const {
    static const std::string none;
    return text_ ? *text_ : none;
  }
  operator const std::string&() const { return text(); }  // NOLINT(google-explicit-constructor)
  operator std::string_view() const { return text(); }    // NOLINT(google-explicit-constructor)

 private:
  std::shared_ptr<const std::string> text_;
};
inline const std::string& to_string(const Label& label) { return label.text(); }

/// Per-call options.
struct CollectiveOptions {
  /// Printed in errors and records and never interpreted, e.g. "bucket 3: fc1.weight, fc1.bias".
  Label label = {};
  /// Deadline of this call; zero means the group's.
  std::chrono::milliseconds timeout{0};
  /// Lane (communicator and its stream) to run on, in [0, group.lanes()). Calls of one lane run in the
  /// order of issue; calls of different lanes may run at once. Must be equal on all ranks.
  int lane = 0;
};

/// Default deadline of a collective.
inline constexpr std::chrono::milliseconds kDefaultTimeout{std::chrono::minutes(10)};

}  // namespace ddp::comm
