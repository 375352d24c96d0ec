#pragma once

namespace ddp::trace {

/// Makes core report to the counters. Cheap after the first call; called by every entry of the recorder,
/// since an object with a constructor would be left out when the library is linked statically.
void listen_to_core() noexcept;

}  // namespace ddp::trace
