#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddp/optim/optimizer.h"
#include "tensor/foreach.h"

namespace ddp::optim {

/// The parameters of an optimiser with their state, and the chunk table of each group. Tables are made once;
/// `prepare` only rewrites pointers, which move at a re-plan of the buckets, and takes memory only for state that
/// is not there yet.
class Optimizer::Table {
 public:
  Table(std::string name, const std::vector<std::vector<Tensor>>& groups);

  /// Fills the table of a group for an update with so many state tensors per parameter.
  void prepare(std::size_t group, std::size_t states);
  std::span<const raw::Chunk> chunks(std::size_t group) const { return groups_[group].chunks; }
  /// The device of a group's parameters.
  Device device(std::size_t group) const;
  /// To be called when the update of the group has been queued: counts it, and raises the versions of the
  /// parameters, which the update changes through bare pointers.
  void commit(std::size_t group);

  std::vector<ParameterState> state() const;
  void load(const std::vector<ParameterState>& state, std::size_t max_tensors);

  const std::string& name() const { return name_; }
  std::size_t num_groups() const { return groups_.size(); }

 private:
  struct Entry {
    Tensor parameter;
    std::int64_t step = 0;
    std::vector<Tensor> states;
    Tensor scratch;  // the gradient in the parameter's layout, where it has another one
  };
  struct Group {
    std::vector<Entry> entries;
    std::vector<raw::Chunk> chunks;
  };
  void put_gradient(Entry& entry, raw::Chunk& chunk);
  void fit_states(Entry& entry, std::size_t count);

  std::string name_;
  std::vector<Group> groups_;
};

/// The lists of parameters of SGDGroups, AdamGroups, ...
template <class Group>
std::vector<std::vector<Tensor>> parameters_of(const std::vector<Group>& groups) {
  std::vector<std::vector<Tensor>> result;
  result.reserve(groups.size());
  for (const Group& group : groups) result.push_back(group.parameters);
  return result;
}

/// Throws InvalidArgument that names optimiser, option, value and range.
void check_at_least_zero(const std::string& optimizer, const char* option, double value);

}  // namespace ddp::optim
