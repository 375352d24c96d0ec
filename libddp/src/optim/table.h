#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp/core/stream.h"
#include "ddp/optim/optimizer.h"
#include "tensor/foreach.h"
#include "tensor/tensor_impl.h"

namespace ddp::optim {

/// The parameters of an optimiser with their state, and the chunk table of each group. Tables are made once;
/// `prepare` only rewrites pointers, which move at a re-plan of the buckets, and takes memory only for state that
/// is not there yet.
///
/// The device may refuse an update (Storage::refusal), and the host does not wait to hear of it. So the host counts
/// every update, the device those that it refused, and the two are settled, with a wait, when a refusal may have been
/// taken back. What is queued before that is refused whatever number it has, so every update that is made has the
/// right number; one that was refused is as if it had never been asked for.
class Optimizer::Table {
 public:
  Table(std::string name, const std::vector<std::vector<Tensor>>& groups);

  /// Fills the table of a group for an update with so many state tensors per parameter.
  void prepare(std::size_t group, std::size_t states);
  std::span<const raw::Chunk> chunks(std::size_t group) const { return groups_[group].chunks; }
  /// The device of a group's parameters.
  Device device(std::size_t group) const;
  /// To be called when the update of the group has been queued: counts it, and raises the versions of the
  /// parameters, which the update changes through bare pointers. (An empty parameter has no updates.)
  void commit(std::size_t group);

  /// Waits for the device if updates have been queued that it may refuse.
  std::vector<ParameterState> state();
  void load(const std::vector<ParameterState>& state, std::size_t max_tensors);

  const std::string& name() const { return name_; }
  std::size_t num_groups() const { return groups_.size(); }

 private:
  struct Entry {
    Tensor parameter;
    std::int64_t step = 0;  // with refused updates that are not settled yet
    std::vector<Tensor> states;
    Tensor scratch;                 // the gradient in the parameter's layout, where it has another one
    IntrusivePtr<Storage> refusal;  // the word that could refuse the last update, with its version then
    std::uint32_t refusal_version = 0;
  };
  struct Group {
    std::vector<Entry> entries;
    std::vector<raw::Chunk> chunks;
    Tensor refused;                        // updates refused since the last settlement, of each entry
    std::optional<StreamView> counted_on;  // the stream of updates that could be refused since then
  };
  void put_gradient(Group& group, std::size_t i);
  void provide_counts(Group& group, Device device);
  void settle(Group& group);
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
