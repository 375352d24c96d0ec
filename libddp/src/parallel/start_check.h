#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "ddp/comm/process_group.h"

/// The contract at the start: what must be equal on all ranks before the first gradient is sent.
namespace ddp::parallel {

struct TensorDescription {
  std::string name;
  Dims sizes;
  Dims strides;
  DType dtype = DType::float32;
  bool requires_grad = true;
};

struct Description {
  std::string subject;  // "DistributedDataParallel", for the error's first words
  std::string refusal;  // why this rank cannot go on, empty if it can: then all ranks refuse
  std::vector<std::pair<std::string, std::string>> settings;  // name, value
  std::vector<TensorDescription> parameters;
  std::vector<TensorDescription> buffers;
};

/// What is different, with both sides and the ranks; empty when nothing is.
std::string first_difference(const Description& a, int rank_a, const Description& b, int rank_b);

/// Collective: throws InvalidArgument on every rank, with the same text, when a rank refuses or differs from
/// rank 0. Blocks the host.
void check_same_on_all_ranks(comm::ProcessGroup& group, const Description& mine, std::source_location where);

}  // namespace ddp::parallel
