// A rank for the tests of known failures: what it does is the first argument, numbers are the others (a list has one
// value for each rank: "1,3"). It prints "name value ..." lines; an error ends it with 1.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "ddp/ddp.h"

namespace {

using namespace ddp;
using parallel::DDPOptions;
using Arguments = std::vector<std::string>;
using Group = std::shared_ptr<comm::ProcessGroup>;

std::vector<double> numbers(const std::string& list) {
  std::vector<double> result;
  std::istringstream in(list);
  for (std::string one; std::getline(in, one, ',');) result.push_back(std::stod(one));
  return result;
}
double mine(const Group& group, const std::string& list) {
  return numbers(list).at(static_cast<std::size_t>(group->rank()));
}

template <class... Values>
void say(const Values&... values) {
  std::printf("%s\n", concat(values...).c_str());
  std::fflush(stdout);
}

Tensor scalar(double value) { return full({1}, value); }
double value_of(const Tensor& tensor) { return tensor.to_vector<double>().at(0); }
std::string text_of(const Tensor& gradient) {
  return gradient.defined() ? concat(value_of(gradient)) : std::string("none");
}
void run_backward(const Tensor& y) { y.backward(ones(y.sizes(), y.options())); }

/// y = w * x; with `hook_fails` its backward throws.
class Scale : public nn::Module {
 public:
  explicit Scale(double value = 1) : w(register_parameter("w", scalar(value))) {}
  Tensor forward(const Tensor& x) { return mul(w, x); }
  Tensor forward(double x) { return forward(scalar(x)); }
  Tensor w;
};

/// a * x, and b * x where it is used.
class Two : public nn::Module {
 public:
  Two() : a(register_parameter("a", scalar(7))), b(register_parameter("b", scalar(8))) {}
  Tensor forward(double x, bool use_b) { return use_b ? add(mul(a, x), mul(b, x)) : mul(a, x); }
  Tensor a, b;
};

/// w * (w * x) with one tensor under two names.
class Tied : public nn::Module {
 public:
  explicit Tied(double value) : emb(register_module("emb", std::make_shared<Scale>(value))) {
    head = register_module("head", std::make_shared<Head>(emb->w));
  }
  Tensor forward(double x) { return mul(head->w, emb->forward(x)); }
  class Head : public nn::Module {
   public:
    explicit Head(const Tensor& shared) : w(register_parameter("w", shared)) {}
    Tensor w;
  };
  std::shared_ptr<Scale> emb;
  std::shared_ptr<Head> head;
};

/// no_sync COVER FIRST SECOND
void no_sync(const Group& group, const Arguments& a) {
  auto module = std::make_shared<Scale>();
  parallel::DistributedDataParallel model(module, group);
  const double first = mine(group, a.at(1));
  const double second = mine(group, a.at(2));
  const auto sent = [&] { return model.counters().collectives; };
  const auto before = sent();
  if (a.at(0) == "both") {
    const auto guard = model.no_sync();
    run_backward(model(first));
  } else if (a.at(0) == "backward") {
    const Tensor y = model(first);
    const auto guard = model.no_sync();
    run_backward(y);
  } else {  // the wrong way round
    run_backward(model(first));
  }
  say("first ", text_of(module->w.grad()), " sent ", sent() - before);
  if (a.at(0) == "inverted") {
    const auto guard = model.no_sync();
    run_backward(model(second));
  } else {
    run_backward(model(second));
  }
  say("second ", text_of(module->w.grad()), " sent ", sent() - before);
}

/// unused X USES_B
void unused(const Group& group, const Arguments& a) {
  auto module = std::make_shared<Two>();
  parallel::DistributedDataParallel model(module, group);
  optim::SGD optimizer(model.parameters(), {.lr = 0.5});
  try {
    run_backward(model(mine(group, a.at(0)), mine(group, a.at(1)) != 0));
    optimizer.step();
  } catch (...) {
    say("a ", value_of(module->a), " b ", value_of(module->b));
    throw;
  }
  say("gradient ", text_of(module->a.grad()), " ", text_of(module->b.grad()));
}

/// tied W X LR move|stay
void tied(const Group& group, const Arguments& a) {
  auto module = std::make_shared<Tied>(std::stod(a.at(0)));
  if (a.at(3) == "move") module->to(Device::cpu(1)), module->to(Device::cpu());
  {
    parallel::DistributedDataParallel model(module, group);
    optim::SGD optimizer(model.parameters(), {.lr = std::stod(a.at(2))});
    say("parameters ", model.parameters().size(), " slots ", model.reducer()->num_slots());
    for (const double x : {mine(group, a.at(1)), 0.0}) {
      optimizer.zero_grad();
      run_backward(model(x));
      say("gradient ", text_of(module->emb->w.grad()));
      optimizer.step();
      say("weights ", value_of(module->emb->w), " ", value_of(module->head->w));
    }
  }
  Tied other(-4);
  other.load_state_dict(module->state_dict());
  say("loaded ", value_of(other.emb->w), " ", value_of(other.head->w));
  say("shared ", module->emb->w.shares_storage_with(module->head->w), " ",
      other.emb->w.shares_storage_with(other.head->w));
}

/// average SIZES VALUES DTYPE
void average(const Group& group, const Arguments& a) {
  std::vector<parallel::GradientSlot> slots;
  for (const double size : numbers(a.at(0))) {
    slots.push_back({concat("p", slots.size()),
                     {static_cast<std::int64_t>(size)},
                     a.at(2) == "int32" ? DType::int32 : DType::float32});
  }
  parallel::Reducer reducer(group, slots, {.bucket_cap_bytes = {64}});
  reducer.prepare();
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    Tensor gradient = reducer.gradient(slot);
    gradient.fill_(mine(group, a.at(1)));
    reducer.mark_ready(slot);
  }
  reducer.finish();
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    for (const double value : reducer.gradient(slot).to_vector<double>()) {
      if (value != value_of(reducer.gradient(slot))) throw std::runtime_error("elements differ");
    }
    say("mean ", value_of(reducer.gradient(slot)));
  }
}

/// batches COUNTS VALUES: the mean loss over so many equal samples.
void batches(const Group& group, const Arguments& a) {
  auto module = std::make_shared<Scale>();
  parallel::DistributedDataParallel model(module, group);
  mean(model(full({static_cast<std::int64_t>(mine(group, a.at(0)))}, mine(group, a.at(1))))).backward();
  say("gradient ", text_of(module->w.grad()));
}

/// twice X: wrapped twice
void twice(const Group& group, const Arguments& a) {
  auto module = std::make_shared<Scale>();
  parallel::DistributedDataParallel model(module, group);
  parallel::DistributedDataParallel again(module, group);
  run_backward(again(mine(group, a.at(0))));
  say("gradient ", text_of(module->w.grad()));
}

/// by_hand X: averaged once more by the user
void by_hand(const Group& group, const Arguments& a) {
  auto module = std::make_shared<Scale>();
  parallel::DistributedDataParallel model(module, group);
  run_backward(model(mine(group, a.at(0))));
  Tensor gradient = module->w.grad();
  group->all_reduce(gradient).wait();
  gradient.mul_(1.0 / group->size());
  say("gradient ", text_of(module->w.grad()));
}

/// model KIND RANK: that rank's model differs
class Described : public nn::Module {
 public:
  explicit Described(const std::string& kind) {
    const DType dtype = kind == "dtype" ? DType::float64 : DType::float32;
    if (kind != "empty") {
      register_parameter("weight", zeros({7, kind == "shape" ? 5 : 4}, {dtype}));
      if (kind != "no_bias") register_parameter("bias", zeros({7}, {dtype}));
    }
    register_buffer("mean", zeros({3}));
    if (kind == "buffer") register_buffer("extra", zeros({2}));
  }
  Tensor forward(double x) { return scalar(x); }
};
void different_model(const Group& group, const Arguments& a) {
  const bool odd = group->rank() == std::stoi(a.at(1));
  parallel::DistributedDataParallel model(std::make_shared<Described>(odd ? a.at(0) : "usual"), group);
  say("wrapped 1");
}

/// raw sizes|dtypes ELEMENTS: a collective of one's own
void raw(const Group& group, const Arguments& a) {
  const auto elements = static_cast<std::int64_t>(mine(group, a.at(1)));
  const DType dtype = a.at(0) == "dtypes" && group->rank() == 1 ? DType::float64 : DType::float32;
  const Tensor tensor = full({elements}, 1.0 + group->rank(), {dtype});
  group->all_reduce(tensor, comm::ReduceOp::sum, {.label = "my sum"}).wait();
  say("result ", value_of(tensor));
}

/// sampler SIZE EPOCHS SEEDS|none AGREE: one line of indices an epoch; epoch "-" does not set it
void sampler(const Group& group, const Arguments& a) {
  const Tensor all = arange(std::stoll(a.at(0)), {DType::int64});
  const data::TensorDataset dataset(all, all);
  data::DistributedSamplerOptions options;
  if (a.at(2) != "none") options.seed = static_cast<std::uint64_t>(mine(group, a.at(2)));
  if (a.at(3) == "agree") options.agree = parallel::agree_seed(group);
  data::DistributedSampler shares(dataset.size(), group->size(), group->rank(), options);
  std::istringstream epochs(a.at(1));
  for (std::string epoch; std::getline(epochs, epoch, ',');) {
    if (epoch != "-") shares.set_epoch(std::stoll(epoch));
    data::DataLoader loader(dataset, shares, {.batch_size = 3});  // made anew each time
    std::string line;
    for (const auto& batch : loader) {
      for (const auto index : batch.input.to_vector<std::int64_t>()) line += concat(" ", index);
    }
    say("indices", line);
  }
}

/// steps COUNTS: ranks with different numbers of batches, nobody told
void steps(const Group& group, const Arguments& a) {
  auto module = std::make_shared<Scale>();
  parallel::DistributedDataParallel model(module, group);
  for (int step = 0; step < mine(group, a.at(0)); ++step) {
    model.zero_grad();
    run_backward(model(1.0 + group->rank()));
    say("step ", step, " ", text_of(module->w.grad()));
  }
}

/// fails KIND RANK STEP: how that rank leaves
void fails(const Group& group, const Arguments& a) {
  auto module = std::make_shared<Two>();
  parallel::DistributedDataParallel model(module, group, {.bucket_cap_bytes = {1}});
  optim::SGD optimizer(model.parameters(), {.lr = 0.25});
  bool now = false;
  register_gradient_hook(module->a, [&](const Tensor&) {
    if (now && a.at(0) == "hook") throw std::runtime_error("bad gradient 29");
  });
  for (int step = 1; step <= 200; ++step) {
    now = group->rank() == std::stoi(a.at(1)) && step == std::stoi(a.at(2));
    optimizer.zero_grad();
    const Tensor y = model(1.0 + group->rank(), true);
    if (now && a.at(0) == "throw") throw std::runtime_error("bad sample 41");
    if (now && a.at(0) == "exit") std::exit(3);
    if (now && a.at(0) == "kill") ::kill(::getpid(), SIGKILL);
    run_backward(y);
    optimizer.step();
  }
  say("finished 1");
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(const Group&, const Arguments&)>> scenarios = {
      {"no_sync", no_sync}, {"unused", unused},   {"tied", tied},       {"average", average},
      {"batches", batches}, {"twice", twice},     {"by_hand", by_hand}, {"model", different_model},
      {"raw", raw},         {"sampler", sampler}, {"steps", steps},     {"fails", fails}};
  try {
    const char* timeout = std::getenv("CASE_TIMEOUT_MS");
    const char* checks = std::getenv("CASE_CHECKS");
    const Group group = comm::init_process_group(
        {.backend = "gloo",
         .timeout = std::chrono::milliseconds(timeout == nullptr ? 20'000 : std::atoi(timeout)),
         .check_collectives = checks != nullptr});
    scenarios.at(argc > 1 ? argv[1] : "")(group, Arguments(argv + 2, argv + argc));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
