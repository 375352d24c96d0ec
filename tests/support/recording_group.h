#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp/comm/process_group.h"

namespace ddp::test {

/// One collective that went through a RecordingGroup.
struct RecordedCall {
  comm::CollectiveKind kind = comm::CollectiveKind::barrier;
  comm::ReduceOp op = comm::ReduceOp::sum;
  DType dtype = DType::uint8;
  std::vector<std::int64_t> elements;  ///< of each output tensor, or of the input where there is no output
  const void* data = nullptr;          ///< the first of these tensors' memory
  std::string label;
  int lane = 0;
  int root = 0;
  std::uint64_t sequence = 0;  ///< of the lane
  std::int64_t time_ns = 0;    ///< steady clock, when it was issued
};

/// Forwards to another group and keeps what was called, in order. `set_delay` makes every collective seem to take
/// that long: its Work completes no earlier than so long after the issue; issuing does not block.
/// Thread safe. Process-wide trace counters count a call here and again in the inner group. With world size 1, and for
/// tensors without elements, nothing reaches it (nor any backend).
class RecordingGroup final : public comm::ProcessGroup {
 public:
  explicit RecordingGroup(std::shared_ptr<comm::ProcessGroup> inner)
      : ProcessGroup(inner->rank(), inner->size(), inner->device(), inner->timeout()), inner_(std::move(inner)) {}

  std::string backend() const override { return inner_->backend(); }
  int lanes() const override { return inner_->lanes(); }
  void ensure_lanes(int count) override { inner_->ensure_lanes(count); }
  std::shared_ptr<comm::Store> store() const override { return inner_->store(); }
  const std::uint64_t* failure_word() const override { return inner_->failure_word(); }
  std::shared_ptr<ProcessGroup> split(int color, int key, std::source_location where) override {
    auto part = inner_->split(color, key, where);
    return part ? std::make_shared<RecordingGroup>(std::move(part)) : nullptr;
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

  void set_delay(std::chrono::nanoseconds delay) {
    const std::lock_guard lock(mutex_);
    delay_ = delay;
  }
  std::vector<RecordedCall> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  void clear_calls() {
    const std::lock_guard lock(mutex_);
    calls_.clear();
  }
  const std::shared_ptr<comm::ProcessGroup>& inner() const { return inner_; }

 protected:
  comm::Work launch(comm::Collective collective) override {
    const auto now = std::chrono::steady_clock::now();
    RecordedCall call{.kind = collective.kind,
                      .op = collective.op,
                      .elements = {},
                      .label = collective.options.label,
                      .lane = collective.options.lane,
                      .root = collective.root,
                      .sequence = collective.sequence,
                      .time_ns = now.time_since_epoch().count()};
    const auto& tensors = collective.outputs.empty() ? collective.inputs : collective.outputs;
    for (const Tensor& tensor : tensors) call.elements.push_back(tensor.numel());
    if (!tensors.empty()) {
      call.dtype = tensors.front().dtype();
      call.data = tensors.front().data();
    }
    std::chrono::nanoseconds delay{};
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
      delay = delay_;
    }
    comm::Work work = forward(collective);
    if (delay.count() == 0) return work;
    return comm::Work(std::make_shared<Delayed>(std::move(work), now + delay));
  }

 private:
  class Delayed final : public comm::WorkState {
   public:
    Delayed(comm::Work work, std::chrono::steady_clock::time_point ready) : work_(std::move(work)), ready_(ready) {}
    bool is_completed() const override {
      return work_.error() || (work_.is_completed() && std::chrono::steady_clock::now() >= ready_);
    }
    void wait(StreamView stream, std::source_location where) override {
      work_.wait(stream, where);
      std::this_thread::sleep_until(ready_);
    }
    void wait_blocking(std::source_location where) override {
      work_.wait_blocking(where);
      std::this_thread::sleep_until(ready_);
    }
    std::exception_ptr error() const override { return work_.error(); }
    std::int64_t started_ns() const override { return work_.started_ns(); }
    std::int64_t ended_ns() const override {
      if (!is_completed()) return 0;
      return std::max<std::int64_t>(work_.ended_ns(), ready_.time_since_epoch().count());
    }

   private:
    const comm::Work work_;
    const std::chrono::steady_clock::time_point ready_;
  };

  comm::Work forward(const comm::Collective& c) {
    const auto& out = c.outputs;
    const auto& in = c.inputs;
    const Tensor none;
    switch (c.kind) {
      case comm::CollectiveKind::all_reduce:
        return out.size() == 1 ? inner_->all_reduce(out[0], c.op, c.options, c.where)
                               : inner_->all_reduce_coalesced(out, c.op, c.options, c.where);
      case comm::CollectiveKind::broadcast:
        return out.size() == 1 ? inner_->broadcast(out[0], c.root, c.options, c.where)
                               : inner_->broadcast_coalesced(out, c.root, c.options, c.where);
      case comm::CollectiveKind::all_gather:
        return inner_->all_gather(out[0], in[0], c.options, c.where);
      case comm::CollectiveKind::reduce_scatter:
        return inner_->reduce_scatter(out[0], in[0], c.op, c.options, c.where);
      case comm::CollectiveKind::gather:
        return inner_->gather(out.empty() ? none : out[0], in[0], c.root, c.options, c.where);
      case comm::CollectiveKind::scatter:
        return inner_->scatter(out[0], in.empty() ? none : in[0], c.root, c.options, c.where);
      case comm::CollectiveKind::all_to_all:
        return inner_->all_to_all(out[0], in[0], c.options, c.where);
      case comm::CollectiveKind::send:
        return inner_->send(in[0], c.root, c.tag, c.options, c.where);
      case comm::CollectiveKind::recv:
        return inner_->recv(out[0], c.root, c.tag, c.options, c.where);
      case comm::CollectiveKind::barrier:
        break;
    }
    inner_->barrier(c.options, c.where);
    return {};
  }

  const std::shared_ptr<comm::ProcessGroup> inner_;
  mutable std::mutex mutex_;
  std::vector<RecordedCall> calls_;
  std::chrono::nanoseconds delay_{};
};

}  // namespace ddp::test
