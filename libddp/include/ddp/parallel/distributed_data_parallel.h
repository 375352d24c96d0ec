#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/comm/process_group.h"
#include "ddp/nn/module.h"
#include "ddp/parallel/reducer.h"

namespace ddp::parallel {

/// Names and defaults are PyTorch's where it has them.
struct DDPOptions {
  std::vector<std::int64_t> bucket_cap_bytes = {kDefaultBucketCapBytes};  ///< one number or a list, see ReducerOptions
  std::int64_t first_bucket_bytes = kFirstBucketAuto;
  /// Gradients live in the buckets; off: own memory, copied in and out (counted).
  /// On: a gradient that somebody holds aliases the bucket and changes with the next backward.
  bool gradient_as_bucket_view = true;
  /// Compare the model on all ranks and broadcast rank 0's parameters and buffers. Off: nothing is sent at
  /// the start; the caller vouches that the replicas are equal.
  bool init_sync = true;
  /// Broadcast rank 0's buffers before each training forward that records a graph, not under `no_sync`. One
  /// collective per dtype. Nothing is sent in evaluation mode or with grad mode off.
  bool broadcast_buffers = true;
  /// Parameters and buffers left to themselves, by full name. An unknown name is an error.
  std::vector<std::string> parameters_to_ignore = {};
  /// Once, before the second training forward: plan the buckets in the order in which gradients arrived.
  bool rebuild = true;
  int lanes = 1;
  /// CUDA groups: the end of backward blocks the host until all sums are there and known to be good, and throws on
  /// every rank if not, as CPU groups always do. For optimisers of your own (libddp's refuse bad gradients on the
  /// device), and to go on training after a ReductionError: without it ranks hear of one at different steps, and have
  /// called their optimisers a different number of times.
  bool blocking_check = false;
};

/// The part of DistributedDataParallel that does not depend on the module's type.
class DDPCore {
 public:
  DDPCore(nn::Module& module, std::shared_ptr<comm::ProcessGroup> group, const DDPOptions& options,
          std::source_location where);
  ~DDPCore();
  DDPCore(const DDPCore&) = delete;
  DDPCore& operator=(const DDPCore&) = delete;

  /// Before the wrapped forward: re-plan, buffers, start of a pass.
  void before_forward();
  /// After it: the outputs (changed in place) lead through a node that ends the pass.
  void after_forward(const std::vector<Tensor*>& outputs);

  const std::shared_ptr<comm::ProcessGroup>& group() const;
  void verify(std::source_location where);
  Reducer* reducer() const;  ///< null when the module has nothing to train or world size is 1
  ReducerCounters counters() const;
  void enter_no_sync();
  void leave_no_sync();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

/// Until the end of the scope gradients only add up locally. See DistributedDataParallel::no_sync.
class [[nodiscard]] NoSyncGuard {
 public:
  explicit NoSyncGuard(DDPCore& core) : core_(core) { core_.enter_no_sync(); }
  ~NoSyncGuard() { core_.leave_no_sync(); }
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  DDPCore& core_;
};

namespace detail {
inline void collect(std::vector<Tensor*>& out, Tensor& tensor) { out.push_back(&tensor); }
template <class T>
void collect(std::vector<Tensor*>& out, std::vector<T>& values);
template <class A, class B>
void collect(std::vector<Tensor*>& out, std::pair<A, B>& pair);
template <class... Ts>
void collect(std::vector<Tensor*>& out, std::tuple<Ts...>& tuple);
/// A result type of one's own: give it a `std::vector<ddp::Tensor*> tensors()` member.
template <class T>
  requires requires(T& value) { value.tensors(); }
void collect(std::vector<Tensor*>& out, T& value) {
  for (Tensor* tensor : value.tensors()) out.push_back(tensor);
}
template <class T>
void collect(std::vector<Tensor*>& out, std::vector<T>& values) {
  for (T& value : values) collect(out, value);
}
template <class A, class B>
void collect(std::vector<Tensor*>& out, std::pair<A, B>& pair) {
  collect(out, pair.first);
  collect(out, pair.second);
}
template <class... Ts>
void collect(std::vector<Tensor*>& out, std::tuple<Ts...>& tuple) {
  std::apply([&out](Ts&... values) { (collect(out, values), ...); }, tuple);
}
}  // namespace detail

/// Trains one replica of `module` on each rank of `group` so that all stay equal: parameters and buffers are
/// rank 0's at the start, and every backward through an output averages the gradients over the ranks in
/// buckets, while it runs. Call it as the module itself: `model(args...)` returns what `forward` returns.
///
/// A parameter that gets no gradient makes backward throw ReductionError on every rank, naming parameter and
/// ranks, before any optimiser can step (at world size 1 it is no error). An exception out of backward on one rank
/// makes backward throw ReductionError on the others, naming that rank. After either the gradients are of no
/// use: clear them. Names carry no prefix.
///
/// On CUDA groups backward does not block the host. When a gradient is missing or the like, libddp's optimisers refuse
/// the update on the device, on every rank; backward throws on the rank at fault, and on the others the next call that
/// sees it does (a forward or a backward through the wrapper, or `verify`), with the same text. `blocking_check` makes
/// it as on CPU groups.
///
/// The mean is over ranks, each rank's loss counting the same. A parameter may be frozen for a while (on all
/// ranks) and thawed again; one that was frozen when wrapped, or that has been replaced since, needs a new wrapper:
/// the next forward throws InvalidArgument naming it. A module can be wrapped once at a time. One with nothing to
/// train is passed through. Not thread safe.
template <class M>
class DistributedDataParallel {
 public:
  /// Collective over the group; throws InvalidArgument on all ranks when the replicas differ. Blocks the host.
  DistributedDataParallel(std::shared_ptr<M> module, std::shared_ptr<comm::ProcessGroup> group,
                          const DDPOptions& options = {}, std::source_location where = std::source_location::current())
      : module_(std::move(module)), core_(std::make_unique<DDPCore>(*module_, std::move(group), options, where)) {}

  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    core_->before_forward();
    auto result = module_->forward(std::forward<Args>(args)...);
    if (core_->reducer() == nullptr) return result;  // alone, or nothing to train
    std::vector<Tensor*> outputs;
    detail::collect(outputs, result);
    core_->after_forward(outputs);
    return result;
  }
  template <class... Args>
  auto forward(Args&&... args) {
    return (*this)(std::forward<Args>(args)...);
  }

  /// Gradients only add up locally until the end of the scope; the next backward outside averages the sum of
  /// all. A micro-batch belongs to the scope when its forward or its backward is inside. Where several forwards
  /// share one backward, the latest of them decides.
  ///
  ///     { auto guard = model.no_sync(); loss(model(first)).backward(); }
  ///     loss(model(second)).backward();
  NoSyncGuard no_sync() { return NoSyncGuard(*core_); }

  M& module() { return *module_; }
  const std::shared_ptr<M>& module_ptr() const { return module_; }
  std::vector<Tensor> parameters() const { return module_->parameters(); }
  std::vector<nn::NamedTensor> named_parameters() const { return module_->named_parameters(); }
  nn::StateDict state_dict() const { return module_->state_dict(); }
  void load_state_dict(const nn::StateDict& state, bool strict = true) { module_->load_state_dict(state, strict); }
  void train(bool on = true) { module_->train(on); }
  void eval() { module_->eval(); }
  void zero_grad() { module_->zero_grad(); }
  /// Blocks the host until it is known that all updates so far were made with good gradients, or throws
  /// ReductionError: on CUDA groups after the last step, before its result is kept. Nothing to do on others.
  void verify(std::source_location where = std::source_location::current()) { core_->verify(where); }
  /// Null at world size 1 and for a module with nothing to train.
  Reducer* reducer() const { return core_->reducer(); }
  /// All zero where there is no reducer. `bytes_copied` has the copies between gradients and buckets of either side.
  ReducerCounters counters() const { return core_->counters(); }
  const std::shared_ptr<comm::ProcessGroup>& group() const { return core_->group(); }

 private:
  std::shared_ptr<M> module_;
  std::unique_ptr<DDPCore> core_;
};

template <class M>
DistributedDataParallel(std::shared_ptr<M>, std::shared_ptr<comm::ProcessGroup>) -> DistributedDataParallel<M>;

}  // namespace ddp::parallel
