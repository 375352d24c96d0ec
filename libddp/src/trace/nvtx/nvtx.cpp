#include "trace/nvtx/nvtx.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>

#include "core/env.h"

namespace ddp::trace::nvtx {
namespace {

nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("ddp");
  return made;
}

}  // namespace

bool wanted() noexcept {
  try {
    if (const auto said = core::env_string("DDP_NVTX"); said && !said->empty()) return *said != "0";
    return core::env_string("NVTX_INJECTION64_PATH").has_value();  // how Nsight Systems brings its library in
  } catch (...) {                                                  // no memory for the text
    return false;
  }
}

void push(std::string_view kind, std::string_view label) noexcept {
  std::array<char, 96> text{};
  std::size_t length = kind.copy(text.data(), 31);
  if (!label.empty()) {
    text[length++] = ' ';
    label.copy(text.data() + length, std::min<std::size_t>(label.size(), text.size() - 1 - length));
  }
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.data();
  nvtxDomainRangePushEx(domain(), &attributes);
}

void pop() noexcept { nvtxDomainRangePop(domain()); }

}  // namespace ddp::trace::nvtx
