// What a recording group sees of whole training steps: when buckets go out, in which order, and from which memory.
#include <algorithm>
#include <numeric>

#include "ddp/autograd/hooks.h"
#include "ddp/nn/linear.h"
#include "ddp/trace/recorder.h"
#include "parallel/models.h"

namespace {

using namespace ddp;
using namespace ddp::test;

constexpr std::size_t kBranches = 5;
constexpr std::int64_t kWidth = 4;
using Order = std::vector<std::size_t>;

// The sum of (i + 1) * linear_i(x), computed in an order of the rank's own: its backward runs in the reverse of it.
class Branches : public nn::Module {
 public:
  explicit Branches(Order order) : order_(std::move(order)) {
    for (std::size_t i = 0; i < kBranches; ++i) {
      branches.push_back(register_module(
          concat("fc", i), std::make_shared<nn::Linear>(kWidth, kWidth, nn::LinearOptions{.bias = false})));
    }
  }
  Tensor forward(const Tensor& x) {
    Tensor y;
    for (const std::size_t i : order_) {
      const Tensor part = mul(branches[i]->forward(x), static_cast<double>(i) + 1);
      y = y.defined() ? add(y, part) : part;
    }
    return sum(y);
  }
  std::vector<std::shared_ptr<nn::Linear>> branches;

 private:
  Order order_;
};

// The labels of a step's collectives as the plan has them.
std::vector<std::string> planned_labels(const parallel::Reducer& reducer) {
  std::vector<std::string> labels;
  for (const auto& bucket : reducer.plan()) {
    std::string label = concat("bucket ", labels.size(), ": fc", bucket.slots.at(0), ".weight");
    for (std::size_t i = 1; i < bucket.slots.size(); ++i) label += concat(", fc", bucket.slots[i], ".weight");
    labels.push_back(label);
  }
  return labels;
}

// Each gradient of the bucket lies in the memory that the collective was given.
void expect_sent_from(const RecordedCall& call, const parallel::BucketInfo& bucket, const Branches& module) {
  const auto* begin = static_cast<const float*>(call.data);
  for (const std::size_t slot : bucket.slots) {
    const auto* gradient = static_cast<const float*>(module.branches[slot]->parameters()[0].grad().data());
    EXPECT_TRUE(gradient >= begin && gradient + kWidth * kWidth <= begin + call.elements.at(0)) << call.label;
  }
}

TEST(Recorded, PlanOrderOnEveryRankWhileBackwardRunsAndNothingIsCopied) {
  const int size = 3;
  const std::vector<Order> orders = {{4, 2, 0, 3, 1}, {0, 1, 2, 3, 4}, {1, 4, 3, 0, 2}};
  // Made here: they draw their first values from one generator.
  std::vector<std::shared_ptr<Branches>> modules;
  for (const Order& order : orders) modules.push_back(std::make_shared<Branches>(order));
  std::vector<std::vector<std::string>> labels(size);
  std::vector<std::vector<Order>> arrivals(size);
  const auto copied = trace::total(trace::Counter::gradient_bytes_copied);
  on_ranks(size, [&](int rank, const auto& inner) {
    const auto mine = static_cast<std::size_t>(rank);
    const auto group = std::make_shared<RecordingGroup>(inner);
    const auto& module = modules[mine];
    auto model = wrap(module, group, {.bucket_cap_bytes = {kWidth * kWidth * 4}});
    Order arrived;
    std::size_t sent_before_the_last = 0;
    for (std::size_t i = 0; i < kBranches; ++i) {
      register_gradient_hook(module->branches[i]->parameters()[0], [&, i](const Tensor&) {
        arrived.push_back(i);
        if (arrived.size() == kBranches) sent_before_the_last = reduced_labels(*group).size();
      });
    }
    for (int step = 1; step <= 3; ++step) {
      model.zero_grad();
      const Tensor loss = model(put(full({2, kWidth}, size * (rank + 1.0) * step)));
      group->clear_calls();
      arrived.clear();
      loss.backward();
      arrivals[mine].push_back(arrived);
      const std::vector<std::string> sent = reduced_labels(*group);
      labels[mine].insert(labels[mine].end(), sent.begin(), sent.end());
      ASSERT_EQ(sent, planned_labels(*model.reducer()));
      // Gradients come in the plan's order on rank 1 in the first step, and on rank 0 after the re-plan. The hook of
      // the last gradient may run before its bucket is marked, and the last bucket goes out at the end.
      if (rank == (step == 1 ? 1 : 0)) {
        EXPECT_GE(sent_before_the_last, kBranches - 2) << "step " << step;
      }
      const auto calls = group->calls();
      const auto plan = model.reducer()->plan();
      ASSERT_EQ(calls.size(), plan.size());
      for (std::size_t i = 0; i < calls.size(); ++i) expect_sent_from(calls[i], plan[i], *module);
      for (std::size_t i = 0; i < kBranches; ++i) {
        // 2 rows of x; the mean of 3 * (1, 2, 3) is 6.
        EXPECT_EQ(module->branches[i]->parameters()[0].grad().template to_vector<double>(),
                  std::vector<double>(kWidth * kWidth, 2.0 * 6 * step * (static_cast<double>(i) + 1)));
      }
    }
    EXPECT_EQ(model.counters().bytes_copied, 0U);
    EXPECT_EQ(model.counters().rebuilds, 1U);
  });
  EXPECT_EQ(trace::total(trace::Counter::gradient_bytes_copied), copied);
  for (std::size_t rank = 0; rank < size; ++rank) {
    EXPECT_EQ(labels[rank], labels[0]);
    Order backwards(orders[rank].rbegin(), orders[rank].rend());
    EXPECT_EQ(arrivals[rank], std::vector<Order>(3, backwards)) << "rank " << rank;
  }
}

}  // namespace
