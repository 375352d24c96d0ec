#include "parallel/slot_check.h"

namespace ddp::parallel {

std::string numbers(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) text += concat(text.empty() ? "" : ", ", value);
  return text;
}

std::string refusal(const comm::ProcessGroup& group, const std::vector<GradientSlot>& slots,
                    const ReducerOptions& options) {
  for (const GradientSlot& slot : slots) {
    if (!is_floating_point(slot.dtype)) {
      return concat("gradient '", slot.name, "' is ", slot.dtype, "; only floating-point gradients are averaged");
    }
    if (slot.device != group.device()) {
      return concat("gradient '", slot.name, "' is on ", slot.device, ", the group's device is ", group.device());
    }
    if (!slot.strides.empty() && slot.strides.size() != slot.sizes.size()) {
      return concat("gradient '", slot.name, "' has sizes ", slot.sizes, " and strides ", slot.strides);
    }
  }
  if (options.lanes < 1) return concat("lanes is ", options.lanes, "; at least 1");
  return {};
}

Description describe_slots(const comm::ProcessGroup& group, const std::vector<GradientSlot>& slots,
                           const ReducerOptions& options) {
  Description description;
  description.subject = "Reducer";
  description.refusal = refusal(group, slots, options);
  for (const GradientSlot& slot : slots) {
    const Dims& strides = slot.strides.empty() ? contiguous_strides(slot.sizes) : slot.strides;
    description.parameters.push_back({slot.name, slot.sizes, strides, slot.dtype, true});
  }
  description.settings = {{"bucket_cap_bytes", numbers(options.bucket_cap_bytes)},
                          {"first_bucket_bytes", std::to_string(options.first_bucket_bytes)},
                          {"rebuild", options.rebuild ? "true" : "false"},
                          {"lanes", std::to_string(options.lanes)}};
  return description;
}

}  // namespace ddp::parallel
