#pragma once

#include <string_view>

/// NVTX ranges of the domain "ddp". no_nvtx.cpp stands in where the headers are not there.
namespace ddp::trace::nvtx {

/// Whether ranges should be emitted before anybody said so: DDP_NVTX, else whether a tool has injected itself.
bool wanted() noexcept;
/// Opens a range on the calling thread; every push needs its pop on the same thread.
void push(std::string_view kind, std::string_view label) noexcept;
void pop() noexcept;

}  // namespace ddp::trace::nvtx
