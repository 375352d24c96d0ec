#include "tensor/foreach.h"

#include <gtest/gtest.h>

#include "ddp/core/device.h"
#include "reference.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

using Values = std::vector<double>;

struct Parameter {
  Tensor p, g, s0, s1;
  Values ref_p, ref_s0, ref_s1;
  Parameter(std::int64_t n, DType dtype, std::uint64_t seed)
      : p(random({n}, dtype, seed)),
        g(random({n}, dtype, seed + 50)),
        s0(full({n}, std::nan(""), p.options())),
        s1(zeros({n}, p.options())),
        ref_p(p.to_vector<double>()),
        ref_s0(static_cast<std::size_t>(n), 0.0),
        ref_s1(static_cast<std::size_t>(n), 0.0) {}
  raw::Chunk chunk(std::int64_t step) const {
    return {p.data(), g.data(), s0.data(), s1.data(), p.numel(), step, p.dtype()};
  }
};

// Three updates by a fixed gradient, compared in the dtype's precision with the recurrence in double.
void check_sgd(const raw::SgdParams& params, DType dtype) {
  std::vector<Parameter> parameters;
  for (const std::int64_t n : {1, 7, 64, 1000}) parameters.emplace_back(n, dtype, static_cast<std::uint64_t>(n));
  for (std::int64_t step = 1; step <= 3; ++step) {
    std::vector<raw::Chunk> chunks;
    for (Parameter& parameter : parameters) {
      chunks.push_back(parameter.chunk(step));
      const Values grad = parameter.g.to_vector<double>();
      for (std::size_t i = 0; i < grad.size(); ++i) {
        const double g = grad[i] + params.weight_decay * parameter.ref_p[i];
        double& v = parameter.ref_s0[i];
        double direction = g;
        if (params.momentum != 0) {
          v = step == 1 ? g : params.momentum * v + (1 - params.dampening) * g;
          direction = params.nesterov ? g + params.momentum * v : v;
        }
        parameter.ref_p[i] -= params.lr * direction;
      }
    }
    raw::sgd_step(chunks, params, Device::cpu());
  }
  for (const Parameter& parameter : parameters) {
    // Values stay below 8; three steps of a few roundings each.
    EXPECT_EQ(difference(parameter.p, parameter.ref_p, 0, 8 * 8 * epsilon(dtype)), "") << name(dtype);
    if (params.momentum != 0) {
      EXPECT_EQ(difference(parameter.s0, parameter.ref_s0, 0, 8 * 8 * epsilon(dtype)), "");
    }
  }
}

TEST(Sgd, EveryVariantAndDtype) {
  for (const DType dtype : kFloating) {
    check_sgd({.lr = 0.1}, dtype);
    check_sgd({.lr = 0.1, .weight_decay = 0.25}, dtype);
    check_sgd({.lr = 0.1, .momentum = 0.9}, dtype);
    check_sgd({.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1}, dtype);
    check_sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}, dtype);
  }
}

TEST(Sgd, ChunksWithoutGradientStayAsTheyAre) {
  const Tensor p = ones({3});
  const Tensor q = ones({2});
  const Tensor g = full({2}, 2);
  const std::vector<raw::Chunk> chunks = {{.parameter = p.data(), .numel = 3},
                                          {.numel = 0},
                                          {.parameter = q.data(), .gradient = g.data(), .numel = 2},
                                          {.parameter = p.data(), .numel = 3}};
  raw::sgd_step(chunks, {.lr = 0.25}, Device::cpu());
  EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(q.to_vector<float>(), (std::vector<float>{0.5F, 0.5F}));
  raw::sgd_step({}, {}, Device::cpu());
}

TEST(Sgd, ManyChunksOnSeveralThreads) {
  const int before = num_threads();
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    std::vector<Parameter> parameters;
    for (std::int64_t n = 1; n < 60000; n = n * 3 + 1) parameters.emplace_back(n, DType::float32, 5);
    std::vector<raw::Chunk> chunks;
    for (const Parameter& parameter : parameters) chunks.push_back(parameter.chunk(1));
    raw::sgd_step(chunks, {.lr = 0.1, .momentum = 0.9}, Device::cpu());
    std::vector<float> all;
    for (const Parameter& parameter : parameters) {
      for (const float value : parameter.p.to_vector<float>()) all.push_back(value);
    }
    results.push_back(all);
  }
  set_num_threads(before);
  EXPECT_EQ(results[0], results[1]);
}

TEST(Sgd, Errors) {
  const Tensor p = ones({2});
  raw::Chunk chunk{.parameter = p.data(), .gradient = p.data(), .numel = 2};
  EXPECT_EQ(error_of([&] { raw::sgd_step({&chunk, 1}, {.momentum = 0.9}, Device::cpu()); }),
            "sgd_step: chunk 0 has no state memory");
  EXPECT_EQ(error_of([&] { raw::sgd_step({&chunk, 1}, {.nesterov = true}, Device::cpu()); }),
            "sgd_step: nesterov with momentum 0 and dampening 0; allowed: momentum above 0 and dampening 0");
  chunk.dtype = DType::int32;
  EXPECT_EQ(error_of([&] { raw::sgd_step({&chunk, 1}, {}, Device::cpu()); }),
            "sgd_step: chunk 0 has dtype int32; allowed: float32, float64, float16, bfloat16");
}

void check_adam(const raw::AdamParams& params, DType dtype) {
  Parameter parameter(333, dtype, 7);
  raw::fill_(parameter.s0, 0);
  const Values grad = parameter.g.to_vector<double>();
  for (std::int64_t step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i < grad.size(); ++i) {
      double& p = parameter.ref_p[i];
      double& m = parameter.ref_s0[i];
      double& v = parameter.ref_s1[i];
      double g = grad[i];
      if (params.decoupled) {
        p -= params.lr * params.weight_decay * p;
      } else {
        g += params.weight_decay * p;
      }
      m = params.beta1 * m + (1 - params.beta1) * g;
      v = params.beta2 * v + (1 - params.beta2) * g * g;
      const double m_hat = m / (1 - std::pow(params.beta1, step));
      const double v_hat = v / (1 - std::pow(params.beta2, step));
      p -= params.lr * m_hat / (std::sqrt(v_hat) + params.eps);
    }
    const raw::Chunk chunk = parameter.chunk(step);
    raw::adam_step({&chunk, 1}, params, Device::cpu());
  }
  // 1 - beta2 = 0.001 in float has a relative error of round-off / 0.001 after bias correction: 2^-24 * 1e3
  // is lost and regained alike in both, so a few roundings of numbers below 4 remain.
  EXPECT_EQ(difference(parameter.p, parameter.ref_p, 0, 4 * 16 * epsilon(dtype)), "") << name(dtype);
}

TEST(Adam, EveryVariantAndDtype) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    check_adam({.lr = 0.01}, dtype);
    check_adam({.lr = 0.01, .weight_decay = 0.1}, dtype);
    check_adam({.lr = 0.01, .weight_decay = 0.1, .decoupled = true}, dtype);
  }
  check_adam({.lr = 0.01, .beta2 = 0.9}, DType::float16);
  const Tensor p = ones({2});
  const raw::Chunk chunk{.parameter = p.data(), .gradient = p.data(), .state0 = p.data(), .numel = 2};
  EXPECT_EQ(error_of([&] { raw::adam_step({&chunk, 1}, {}, Device::cpu()); }),
            "adam_step: chunk 0 has no state memory");
}

TEST(ClipAll, ScalesByAFactorBelowOne) {
  const auto clipped = [](double norm, double max_norm) {
    const std::vector<Tensor> tensors = {full({3}, 2), full({2}, 4, {DType::float64, Device::cpu()}), empty({0})};
    raw::clip_all_(tensors, full({}, norm, {DType::float64, Device::cpu()}), max_norm);
    EXPECT_EQ(tensors[0].to_vector<float>(),
              std::vector<float>(3, static_cast<float>(tensors[1].to_vector<double>()[0] / 2)));
    return tensors[1].to_vector<double>()[1];
  };
  EXPECT_EQ(clipped(1, 2), 4);
  EXPECT_EQ(clipped(4, 1), 4 * (1 / (4 + 1e-6)));
  EXPECT_EQ(clipped(std::numeric_limits<double>::infinity(), 1), 0);
  EXPECT_NE(error_of([] { raw::clip_all_({ones({2})}, ones({2}), 1); }).find("expected one float64 element"),
            std::string::npos);
  raw::clip_all_({}, zeros({}, {DType::float64, Device::cpu()}), 1);
}

TEST(TotalNorm, OverAllTensors) {
  const std::vector<Tensor> tensors = {full({3}, 2), full({2, 2}, 1, {DType::bfloat16, Device::cpu()}), empty({0}),
                                       full({}, 3, {DType::float64, Device::cpu()})};
  EXPECT_EQ(raw::total_norm(tensors).item<double>(), 5);  // sqrt(12 + 4 + 9)
  EXPECT_EQ(raw::total_norm(tensors).sizes(), Dims{});
  EXPECT_EQ(raw::total_norm({}).item<double>(), 0);
  EXPECT_NE(error_of([] { raw::total_norm({raw::transpose(ones({2, 3}), 0, 1)}); }).find("is not row-major"),
            std::string::npos);
}

TEST(ScaleAll, EveryDtype) {
  std::vector<Tensor> tensors;
  for (const DType dtype : kFloating) tensors.push_back(full({100}, 3, {dtype, Device::cpu()}));
  tensors.push_back(empty({0}));
  raw::scale_all_(tensors, 0.5);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(tensors[i].to_vector<double>(), Values(100, 1.5));
  EXPECT_NE(error_of([] { raw::scale_all_({arange(3)}, 2); }), "no error");
}

}  // namespace
}  // namespace ddp
