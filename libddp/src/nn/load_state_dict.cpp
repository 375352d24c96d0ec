#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "ddp/autograd/grad_mode.h"
#include "ddp/core/error.h"
#include "ddp/nn/module.h"

namespace ddp::nn {
namespace {

void append_list(std::string& text, std::string_view what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  text += concat("\n  ", what, " (", names.size(), "): ");
  for (std::size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : ", ") + names[i];
}

}  // namespace

void Module::load_state_dict(const StateDict& state, bool strict) {
  const StateDict own = state_dict();
  std::unordered_map<std::string_view, Tensor> given;
  std::vector<std::string> repeated;
  for (const auto& [name, tensor] : state) {
    if (!given.emplace(name, tensor).second) repeated.push_back(name);
  }
  struct Match {
    Tensor to;
    Tensor from;
  };
  std::vector<Match> matches;
  std::unordered_set<const TensorImpl*> loaded;
  std::vector<std::string> wrong;
  std::unordered_set<std::string_view> known;
  for (const auto& [name, tensor] : own) {
    known.insert(name);
    const auto found = given.find(name);
    if (found == given.end()) continue;
    loaded.insert(tensor.impl().get());
    if (!found->second.defined()) {
      wrong.push_back(concat(name, " (given undefined)"));
    } else if (found->second.sizes() != tensor.sizes()) {
      wrong.push_back(concat(name, " (given ", found->second.sizes(), ", module has ", tensor.sizes(), ")"));
    } else {
      matches.push_back({tensor, found->second});
    }
  }
  std::vector<std::string> missing;
  for (const auto& [name, tensor] : own) {
    if (!given.contains(name) && !loaded.contains(tensor.impl().get())) missing.push_back(name);
  }
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : state) {
    if (!known.contains(name)) unexpected.push_back(name);
  }
  const bool bad = !(missing.empty() && unexpected.empty() && wrong.empty() && repeated.empty());
  if ((strict && bad) || (bad && matches.empty())) {
    std::string text = strict ? "load_state_dict: the state does not fit the module"
                              : "load_state_dict: nothing in the state fits the module";
    append_list(text, "missing", missing);
    append_list(text, "unexpected", unexpected);
    append_list(text, "wrong sizes", wrong);
    append_list(text, "given more than once", repeated);
    throw InvalidArgument(text);
  }
  const NoGradGuard no_grad;
  for (Match& match : matches) {
    // A state made by this module's own state_dict holds the very same handles.
    if (!match.to.is_same(match.from)) match.to.copy_(match.from);
  }
}

}  // namespace ddp::nn
