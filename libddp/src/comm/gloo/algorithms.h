#pragma once

#include "comm/gloo/exchange.h"

namespace ddp::comm {

/// Carries out one collective with the other ranks; blocks. All reductions combine in rank order, so that a sum
/// depends neither on its place in a tensor nor on how tensors are cut into messages.
void run_exchange(const Exchange& exchange);

/// Compares `text` on all ranks first; returns the difference found ("rank 0 called ..., rank 2 called ..."), the
/// same on every rank, or an empty text.
std::string compare_calls(const Exchange& exchange, const std::string& text);

}  // namespace ddp::comm
