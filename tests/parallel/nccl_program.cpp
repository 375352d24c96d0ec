// A rank for the tests of DistributedDataParallel over NCCL, on cuda:0 whatever its number. What it does are its
// arguments, one after the other in one group; it prints lines "what: name value ...", and an error ends it with 1.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <string>

#include "ddp/autograd/function.h"
#include "ddp/autograd/hooks.h"
#include "ddp/optim/sgd.h"
#include "ddp/trace/recorder.h"
#include "parallel/equivalence.h"
#include "parallel/hash.h"

namespace {

using namespace ddp;
using namespace ddp::test;
using parallel::DistributedDataParallel;
using Group = std::shared_ptr<comm::ProcessGroup>;

std::string scenario;

template <class... Texts>
void say(const Texts&... texts) {
  std::printf("%s: %s\n", scenario.c_str(), concat(texts...).c_str());
  std::fflush(stdout);
}

std::string hash_of(const Values& values) {
  parallel::Hash hash;
  for (const auto& one : values) {
    for (const double value : one) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      hash.add(bits);
    }
  }
  return std::to_string(hash.value());
}

/// Some 20 ms of work on the current stream.
void delay() {
  static const Tensor large = empty({64 << 20}, {DType::float32, test_device()});
  Tensor x = large;
  for (int i = 0; i < 200; ++i) x.fill_(i);
}

template <class M>
void equivalence(const Group& group, bool views) {
  auto module = make_module<M>(DType::float64);
  initialise(*module, 7U + static_cast<unsigned>(group->rank()));
  DistributedDataParallel<M> model(module, group,
                                   {.bucket_cap_bytes = {1500}, .gradient_as_bucket_view = views, .lanes = 2});
  Wrapped<M> wrapped{model};
  const Result result = train(*module, wrapped, group->size(), group->rank(), DType::float64, kSteps);
  model.verify();
  const Result alone = train_alone<M>(group->size(), DType::float64, kSteps);
  double error = 0;
  for (std::size_t i = 0; i < alone.parameters.size(); ++i) {
    error = std::max(error, relative_error(result.parameters[i], alone.parameters[i]));
  }
  say("buckets ", model.reducer()->plan().size());
  say("error ", error);
  say("close ", error < 1e-10);
  say("copied ", model.counters().bytes_copied);
  say("hash ", hash_of(result.parameters));
}

/// What a step costs beside the same step without the wrapper, when the plan has settled.
void steady(const Group& group) {
  auto module = make_module<Mlp>(DType::float32);
  auto plain = make_module<Mlp>(DType::float32);
  DistributedDataParallel<Mlp> model(module, group, {.bucket_cap_bytes = {600}});
  optim::SGD optimizer(module->parameters(), {.lr = 0.01, .momentum = 0.9});
  optim::SGD plain_optimizer(plain->parameters(), {.lr = 0.01, .momentum = 0.9});
  const Batch batch = rows<Mlp>(0, kBatch, 0, kBatch, DType::float32);
  const auto step = [&](auto& forward, optim::SGD& update) {
    update.zero_grad();
    const auto before = trace::snapshot();
    cross_entropy(forward(batch.input), batch.target).backward();
    update.step();
    return trace::snapshot() - before;
  };
  const auto local = [&](const Tensor& x) { return plain->forward(x); };
  const auto wrapped = [&](const Tensor& x) { return model(x); };
  for (int i = 0; i < 5; ++i) {
    step(wrapped, optimizer);
    step(local, plain_optimizer);
  }
  synchronize(test_device());
  std::int64_t blocking = 0;
  std::int64_t added = 0;
  std::int64_t copied = 0;
  constexpr int kCounted = 10;
  for (int i = 0; i < kCounted; ++i) {
    const auto with = step(wrapped, optimizer);
    const auto without = step(local, plain_optimizer);
    blocking += with[trace::Counter::blocking_calls];
    added += with[trace::Counter::kernel_launches] - without[trace::Counter::kernel_launches];
    copied += with[trace::Counter::gradient_bytes_copied];
  }
  model.verify();
  const auto buckets = static_cast<std::int64_t>(model.reducer()->plan().size());
  say("blocking ", blocking);
  say("copied ", copied, " ", model.counters().bytes_copied);
  say("several buckets ", buckets > 2);
  // The collectives, the status word, the verdict.
  say("launches added beyond the buckets ", static_cast<double>(added) / kCounted - static_cast<double>(buckets));
}

class Late : public Scale {
 public:
  Tensor forward(double x) {
    const Tensor late = apply_function(
        "late", {w}, [](FunctionContext&, const std::vector<Tensor>& in) { return std::vector<Tensor>{clone(in[0])}; },
        [this](FunctionContext&, const std::vector<Tensor>& grads) {
          if (slow) delay();
          if (fail) throw std::runtime_error("bad sample 47");
          return grads;
        })[0];
    return mul(late, x);
  }
  bool slow = false;
  bool fail = false;
};

/// B13 on a side stream.
void ordered(const Group& group) {
  const Stream side(test_device());
  const StreamGuard guard(side);
  auto module = std::make_shared<Late>();
  module->to(test_device());
  DistributedDataParallel<Late> model(module, group);
  int wrong = 0;
  std::vector<Tensor> read;
  for (int step = 0; step < 100; ++step) {
    module->slow = step % 5 == 0;
    model.zero_grad();
    run_backward(model(static_cast<double>(group->size() * (group->rank() + step))));
    read.push_back(add(module->w.grad(), 0.0));
  }
  model.verify();
  const int size = group->size();
  for (int step = 0; step < 100; ++step) {
    // NCCL's average may round: the numbers are small, the sum of so many roundings below a thousandth.
    const double want = size * (size - 1) / 2.0 + size * step;
    wrong += std::abs(value_of(read[static_cast<std::size_t>(step)]) - want) < 1e-3 ? 0 : 1;
  }
  say("wrong ", wrong, " of 100");
}

/// missing|frozen|gives_up: a bad pass of rank 1 after a good one. Nobody's parameters change.
void refused(const Group& group, const std::string& kind) {
  auto module = std::make_shared<Two>(7, 8);
  module->to(test_device());
  DistributedDataParallel<Two> model(module, group);
  optim::SGD optimizer(model.parameters(), {.lr = 0.5, .momentum = 0.9});
  const auto values = [&] { return values_of(module->parameters()); };
  const auto step = [&](double x) {
    optimizer.zero_grad();
    const Tensor y = model(x);
    delay();
    run_backward(y);
    optimizer.step();
  };
  step(group->rank() + 1.0);
  model.verify();
  const Values before = values();
  std::string text = "nothing was thrown";
  if (group->rank() == 1) {
    if (kind == "missing") module->use_b = false;
    if (kind == "frozen") module->b.set_requires_grad(false);
  }
  try {
    if (kind == "gives_up" && group->rank() == 1) {
      Tensor y = model(1.0);
      const auto id =
          register_gradient_hook(module->a, [](const Tensor&) { throw std::runtime_error("bad sample 53"); });
      try {
        run_backward(y);
      } catch (const std::runtime_error& error) {
        text = error.what();
      }
      remove_gradient_hook(module->a, id);
    } else {
      for (int i = 0; i < 3; ++i) step(1);
      model.verify();
    }
  } catch (const ReductionError& error) {
    text = error.what();
  }
  say("text ", text);
  say("unchanged ", values() == before);
  module->use_b = true;
  module->b.set_requires_grad(true);
  // All go on together.
  for (int i = 0; i < 3; ++i) step(group->rank() + 1.0);
  model.verify();
  say("changed ", values() != before);
  say("hash ", hash_of(values()));
}

/// Rank 1 never comes to the second pass, and rank 0, whose update is queued behind the sums, ends the group: the sums
/// give up and leave rank 0's own gradients where the averages should be.
void aborted(const Group& group) {
  auto module = std::make_shared<Two>(7, 8);
  module->to(test_device());
  DistributedDataParallel<Two> model(module, group, {.rebuild = false});
  optim::SGD optimizer(model.parameters(), {.lr = 0.5, .momentum = 0.9});
  const auto step = [&] {
    optimizer.zero_grad();
    run_backward(model(group->rank() + 1.0));
    optimizer.step();
  };
  step();
  model.verify();
  const Values before = values_of(module->parameters());
  std::string text = "nothing was thrown";
  try {
    if (group->rank() == 0) {
      step();
      group->abort("operator pressed stop");
      model.verify();
    } else {
      group->barrier();
    }
  } catch (const CommError& error) {
    text = error.what();
  }
  say("text ", text);
  say("unchanged ", values_of(module->parameters()) == before);
}

/// model: rank 1's has another shape
void different(const Group& group) {
  struct Odd : Many {
    explicit Odd(std::int64_t elements) : Many(2, elements) {}
  };
  auto module = std::make_shared<Odd>(group->rank() == 1 ? 5 : 4);
  DistributedDataParallel<Odd> model(module, group);
  say("wrapped 1");
}

}  // namespace

int main(int argc, char** argv) {
  setenv("DDP_TEST_BACKEND", "cuda", 1);  // the helpers' device
  const std::map<std::string, std::function<void(const Group&)>> scenarios = {
      {"mlp", [](const Group& group) { equivalence<Mlp>(group, true); }},
      {"mlp copied", [](const Group& group) { equivalence<Mlp>(group, false); }},
      {"cnn", [](const Group& group) { equivalence<Cnn>(group, true); }},
      {"steady", steady},
      {"ordered", ordered},
      {"missing", [](const Group& group) { refused(group, "missing"); }},
      {"frozen", [](const Group& group) { refused(group, "frozen"); }},
      {"gives up", [](const Group& group) { refused(group, "gives_up"); }},
      {"aborted", aborted},
      {"different", different}};
  try {
    const Group group = comm::init_process_group(
        {.backend = "nccl", .device = test_device(), .timeout = std::chrono::milliseconds(20'000)});
    for (int i = 1; i < argc; ++i) {
      scenario = argv[i];
      scenarios.at(scenario)(group);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", scenario.c_str(), error.what());
    return 1;
  }
}
