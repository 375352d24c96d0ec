#include "ddp/optim/sgd.h"

#include "ddp/core/error.h"
#include "ddp/trace/device_span.h"
#include "optim/table.h"

namespace ddp::optim {
namespace {

void check(const SGDOptions& options) {
  check_at_least_zero("SGD", "lr", options.lr);
  check_at_least_zero("SGD", "momentum", options.momentum);
  check_at_least_zero("SGD", "weight_decay", options.weight_decay);
  DDP_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), InvalidArgument,
            "SGD: nesterov needs momentum above 0 and dampening 0; momentum is ", options.momentum, ", dampening ",
            options.dampening);
}

}  // namespace

SGD::SGD(std::vector<Tensor> parameters, const SGDOptions& options)
    : SGD(std::vector<SGDGroup>{{std::move(parameters), options}}) {}

SGD::SGD(const std::vector<SGDGroup>& groups) : Optimizer("SGD", parameters_of(groups)) {
  for (const SGDGroup& group : groups) {
    check(group.options);
    groups_.push_back(group.options);
  }
}

void SGD::step() {
  const trace::PhaseSpan span(trace::SpanKind::optimizer, table().device(0), "SGD");
  // All tables first: what they refuse must not leave half of the groups updated.
  for (std::size_t g = 0; g < groups_.size(); ++g) table().prepare(g, groups_[g].momentum != 0 ? 1 : 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const SGDOptions& options = groups_[g];
    raw::sgd_step(table().chunks(g),
                  {.lr = options.lr,
                   .momentum = options.momentum,
                   .dampening = options.dampening,
                   .weight_decay = options.weight_decay,
                   .nesterov = options.nesterov},
                  table().device(g));
    table().commit(g);
  }
}

double SGD::learning_rate(std::size_t group) const {
  DDP_CHECK(group < groups_.size(), InvalidArgument, "SGD: there is no group ", group, " of ", groups_.size());
  return groups_[group].lr;
}

void SGD::set_learning_rate(std::size_t group, double lr) {
  DDP_CHECK(group < groups_.size(), InvalidArgument, "SGD: there is no group ", group, " of ", groups_.size());
  check_at_least_zero("SGD", "lr", lr);
  groups_[group].lr = lr;
}

}  // namespace ddp::optim
