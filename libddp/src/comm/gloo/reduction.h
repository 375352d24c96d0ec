#pragma once

#include "comm/gloo/exchange.h"

namespace ddp::comm {

/// Sums (or otherwise combines) the tensors of an all_reduce in place on all ranks.
void exchange_all_reduce(const Exchange& exchange);
/// Row `rank` of the inputs of all ranks, combined, into the output.
void exchange_reduce_scatter(const Exchange& exchange);

}  // namespace ddp::comm
