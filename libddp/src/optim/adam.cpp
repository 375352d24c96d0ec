#include "ddp/optim/adam.h"

#include "ddp/core/error.h"
#include "ddp/trace/device_span.h"
#include "optim/table.h"

namespace ddp::optim {
namespace {

std::vector<AdamGroup> as_adam(const std::vector<AdamWGroup>& groups) {
  std::vector<AdamGroup> result;
  result.reserve(groups.size());
  for (const auto& [parameters, o] : groups) {
    result.push_back({parameters, {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay}});
  }
  return result;
}

void check(const std::string& name, const AdamOptions& options) {
  check_at_least_zero(name, "lr", options.lr);
  check_at_least_zero(name, "eps", options.eps);
  check_at_least_zero(name, "weight_decay", options.weight_decay);
  DDP_CHECK(options.beta1 >= 0 && options.beta1 < 1, InvalidArgument, name, ": beta1 is ", options.beta1,
            "; it must be in [0, 1)");
  DDP_CHECK(options.beta2 >= 0 && options.beta2 < 1, InvalidArgument, name, ": beta2 is ", options.beta2,
            "; it must be in [0, 1)");
}

}  // namespace

Adam::Adam(std::string name, const std::vector<AdamGroup>& groups, bool decoupled)
    : Optimizer(name, parameters_of(groups)), name_(std::move(name)), decoupled_(decoupled) {
  for (const AdamGroup& group : groups) {
    check(name_, group.options);
    groups_.push_back(group.options);
  }
}

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options)
    : Adam("Adam", {{std::move(parameters), options}}, false) {}
Adam::Adam(const std::vector<AdamGroup>& groups) : Adam("Adam", groups, false) {}
AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : Adam("AdamW", as_adam({{std::move(parameters), options}}), true) {}
AdamW::AdamW(const std::vector<AdamWGroup>& groups) : Adam("AdamW", as_adam(groups), true) {}

void Adam::step() {
  const trace::PhaseSpan span(trace::SpanKind::optimizer, table().device(0), name_);
  // All tables first: what they refuse must not leave half of the groups updated.
  for (std::size_t g = 0; g < groups_.size(); ++g) table().prepare(g, 2);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const AdamOptions& options = groups_[g];
    raw::adam_step(table().chunks(g),
                   {.lr = options.lr,
                    .beta1 = options.beta1,
                    .beta2 = options.beta2,
                    .eps = options.eps,
                    .weight_decay = options.weight_decay,
                    .decoupled = decoupled_},
                   table().device(g));
    table().commit(g);
  }
}

double Adam::learning_rate(std::size_t group) const {
  DDP_CHECK(group < groups_.size(), InvalidArgument, name_, ": there is no group ", group, " of ", groups_.size());
  return groups_[group].lr;
}

void Adam::set_learning_rate(std::size_t group, double lr) {
  DDP_CHECK(group < groups_.size(), InvalidArgument, name_, ": there is no group ", group, " of ", groups_.size());
  check_at_least_zero(name_, "lr", lr);
  groups_[group].lr = lr;
}

}  // namespace ddp::optim
