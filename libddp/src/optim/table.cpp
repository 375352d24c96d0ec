#include "optim/table.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "autograd/accumulate_grad.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/core/error.h"
#include "tensor/copy.h"
#include "tensor/tensor_impl.h"

namespace ddp::optim {
namespace {

/// True when the elements fill one block without gaps or sharing, in whatever order.
bool is_dense(const Tensor& tensor) {
  if (tensor.is_contiguous() || tensor.numel() == 0) return true;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, size
  for (std::size_t i = 0; i < tensor.sizes().size(); ++i) {
    if (tensor.sizes()[i] != 1) dims.emplace_back(tensor.strides()[i], tensor.sizes()[i]);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

bool same_layout(const Tensor& a, const Tensor& b) {
  const TensorImpl& first = *a.impl();
  const TensorImpl& second = *b.impl();
  return (first.is_contiguous() && second.is_contiguous()) || first.strides() == second.strides();
}

/// Zeros laid out like `like`, so that element k in memory belongs to element k there.
Tensor zeros_in_layout_of(const Tensor& like) {
  const Tensor flat = zeros({like.numel()}, like.options());
  return make_view(flat, like.sizes(), like.strides(), 0);
}

}  // namespace

Optimizer::Table::Table(std::string name, const std::vector<std::vector<Tensor>>& groups) : name_(std::move(name)) {
  std::unordered_set<const TensorImpl*> seen;
  DDP_CHECK(!groups.empty(), InvalidArgument, name_, ": there are no parameters");
  for (std::size_t g = 0; g < groups.size(); ++g) {
    DDP_CHECK(!groups[g].empty(), InvalidArgument, name_, ": group ", g, " has no parameters");
    Group& group = groups_.emplace_back();
    for (std::size_t i = 0; i < groups[g].size(); ++i) {
      const Tensor& tensor = groups[g][i];
      const std::string what = concat(name_, ": parameter ", i, " of group ", g);
      DDP_CHECK(tensor.defined(), InvalidArgument, what, " is undefined");
      DDP_CHECK(is_floating_point(tensor.dtype()), InvalidArgument, what, " is ", tensor.dtype(),
                "; floating point is needed");
      DDP_CHECK(tensor.is_leaf(), InvalidArgument, what, " ", tensor.sizes(),
                " is the result of a recorded function; only leaves can be trained");
      DDP_CHECK(is_dense(tensor), InvalidArgument, what, " has sizes ", tensor.sizes(), " and strides ",
                tensor.strides(), ", which leave gaps in memory");
      DDP_CHECK(seen.insert(tensor.impl().get()).second, InvalidArgument, what, " ", tensor.sizes(), " is given twice");
      group.entries.emplace_back().parameter = tensor;
    }
    group.chunks.resize(group.entries.size());
  }
}

void Optimizer::Table::put_gradient(Group& group, std::size_t i) {
  Entry& entry = group.entries[i];
  raw::Chunk& chunk = group.chunks[i];
  const autograd::AccumulateGrad* accumulator = autograd::existing_accumulator(entry.parameter);
  chunk.gradient = nullptr;
  chunk.refusal = nullptr;
  if (accumulator == nullptr || !accumulator->valid()) return;
  const Tensor& gradient = accumulator->memory();
  const Storage& storage = *gradient.impl()->storage();
  chunk.refusal = storage.refusal();
  const IntrusivePtr<Storage>& word = storage.refusal_word();
  const std::uint32_t version = word ? word->version() : 0;
  if (word != entry.refusal || version != entry.refusal_version) {
    settle(group);
    entry.refusal = word;
    entry.refusal_version = version;
  }
  if (same_layout(gradient, entry.parameter)) {
    chunk.gradient = gradient.data();
    return;
  }
  if (!entry.scratch.defined() || !same_layout(entry.scratch, entry.parameter) ||
      entry.scratch.device() != gradient.device() || entry.scratch.dtype() != gradient.dtype()) {
    entry.scratch = zeros_in_layout_of(entry.parameter);
  }
  raw::copy_(entry.scratch, gradient);
  chunk.gradient = entry.scratch.data();
}

void Optimizer::Table::fit_states(Entry& entry, std::size_t count) {
  while (entry.states.size() < count) entry.states.push_back(zeros_in_layout_of(entry.parameter));
  for (Tensor& state : entry.states) {
    // The module was moved after the state had been made.
    const bool fits = state.device() == entry.parameter.device() && state.dtype() == entry.parameter.dtype() &&
                      same_layout(state, entry.parameter);
    if (fits) continue;
    const Tensor moved = zeros_in_layout_of(entry.parameter);
    raw::copy_(moved, state);
    state = moved;
  }
}

void Optimizer::Table::provide_counts(Group& group, Device device) {
  const bool needed = std::any_of(group.chunks.begin(), group.chunks.end(), [](const raw::Chunk& chunk) {
    return chunk.gradient != nullptr && chunk.refusal != nullptr;
  });
  if (needed && (!group.refused.defined() || group.refused.device() != device)) {
    settle(group);
    group.refused = zeros({static_cast<std::int64_t>(group.entries.size())}, {DType::int32, device});
  }
  for (std::size_t i = 0; i < group.chunks.size(); ++i) {
    group.chunks[i].refused = needed ? static_cast<std::uint32_t*>(group.refused.data()) + i : nullptr;
  }
}

void Optimizer::Table::settle(Group& group) {
  if (!group.counted_on) return;
  const StreamView stream = current_stream(group.refused.device());
  if (!(stream == *group.counted_on)) stream.wait_for(*group.counted_on);
  const std::vector<std::int32_t> refused = group.refused.to_vector<std::int32_t>();
  if (std::any_of(refused.begin(), refused.end(), [](std::int32_t count) { return count != 0; })) {
    raw::fill_(group.refused, 0);
    if (!(stream == *group.counted_on)) group.counted_on->wait_for(stream);
  }
  group.counted_on.reset();
  for (std::size_t i = 0; i < refused.size(); ++i) group.entries[i].step -= refused[i];
}

Device Optimizer::Table::device(std::size_t group) const { return groups_[group].entries.front().parameter.device(); }

void Optimizer::Table::prepare(std::size_t group, std::size_t states) {
  const NoGradGuard no_grad;
  std::vector<Entry>& entries = groups_[group].entries;
  const Device device = entries.front().parameter.device();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Device other = entries[i].parameter.device();
    DDP_CHECK(other == device, InvalidArgument, name_, ": parameter ", i, " of group ", group, " is on ", other,
              ", the first one on ", device, "; a group must be on one device");
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    put_gradient(groups_[group], i);
  }
  provide_counts(groups_[group], device);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    raw::Chunk& chunk = groups_[group].chunks[i];
    if (chunk.gradient == nullptr) continue;
    fit_states(entry, states);
    chunk.parameter = entry.parameter.data();
    chunk.state0 = states > 0 ? entry.states[0].data() : nullptr;
    chunk.state1 = states > 1 ? entry.states[1].data() : nullptr;
    chunk.numel = entry.parameter.numel();
    chunk.step = entry.step + 1;
    chunk.dtype = entry.parameter.dtype();
  }
}

void Optimizer::Table::commit(std::size_t group) {
  for (std::size_t i = 0; i < groups_[group].entries.size(); ++i) {
    const raw::Chunk& chunk = groups_[group].chunks[i];
    if (chunk.gradient == nullptr || chunk.numel == 0) continue;
    if (chunk.refusal != nullptr) groups_[group].counted_on = current_stream(device(group));
    Entry& entry = groups_[group].entries[i];
    ++entry.step;
    entry.parameter.impl()->storage()->bump_version();
  }
}

std::vector<ParameterState> Optimizer::Table::state() {
  std::vector<ParameterState> result;
  for (Group& group : groups_) {
    settle(group);
    for (const Entry& entry : group.entries) {
      // A refused first update has left states behind that nothing has been written to.
      result.push_back({entry.step, entry.step == 0 ? std::vector<Tensor>() : entry.states});
    }
  }
  return result;
}

void Optimizer::Table::load(const std::vector<ParameterState>& state, std::size_t max_tensors) {
  const NoGradGuard no_grad;
  std::vector<Entry*> entries;
  for (Group& group : groups_) {
    for (Entry& entry : group.entries) entries.push_back(&entry);
  }
  DDP_CHECK(state.size() == entries.size(), InvalidArgument, name_, ": the state is for ", state.size(),
            " parameters, but there are ", entries.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    DDP_CHECK(state[i].step >= 0, InvalidArgument, name_, ": the state of parameter ", i, " has step ", state[i].step,
              "; it must be at least 0");
    DDP_CHECK(state[i].tensors.size() <= max_tensors, InvalidArgument, name_, ": the state of parameter ", i, " has ",
              state[i].tensors.size(), " tensors; at most ", max_tensors, " are used");
    for (const Tensor& tensor : state[i].tensors) {
      DDP_CHECK(tensor.defined() && tensor.sizes() == entries[i]->parameter.sizes(), InvalidArgument, name_,
                ": the state of parameter ", i, " has a tensor of sizes ",
                tensor.defined() ? to_string(tensor.sizes()) : std::string("(undefined)"), "; the parameter has ",
                entries[i]->parameter.sizes());
    }
  }
  for (Group& group : groups_) settle(group);
  for (std::size_t i = 0; i < state.size(); ++i) {
    Entry& entry = *entries[i];
    std::vector<Tensor> copies;
    for (const Tensor& tensor : state[i].tensors) {
      copies.push_back(zeros_in_layout_of(entry.parameter));
      raw::copy_(copies.back(), tensor);
    }
    entry.step = state[i].step;
    entry.states = std::move(copies);
  }
}

void check_at_least_zero(const std::string& optimizer, const char* option, double value) {
  DDP_CHECK(std::isfinite(value) && value >= 0, InvalidArgument, optimizer, ": ", option, " is ", value,
            "; it must be at least 0 and finite");
}

}  // namespace ddp::optim
