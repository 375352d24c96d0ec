#include "ddp/comm/work.h"

namespace ddp::comm {

void Work::wait(std::source_location where) const {
  // Backends order the current stream of their own device; the CPU's is only a marker for "the caller".
  if (state_) state_->wait(current_stream(state_->device()), where);
}

void Work::wait(StreamView stream, std::source_location where) const {
  if (state_) state_->wait(stream, where);
}

void Work::wait_blocking(std::source_location where) const {
  if (state_) state_->wait_blocking(where);
}

}  // namespace ddp::comm
