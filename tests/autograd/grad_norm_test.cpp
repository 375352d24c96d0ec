#include <gtest/gtest.h>

#include "support/grad_check.h"

namespace ddp {
namespace {

using test::check_gradients;
using test::GradInput;
using Inputs = std::vector<Tensor>;

TEST(GradBatchNorm, Training) {
  for (const Dims& x : {Dims{3, 2, 2, 3}, Dims{4, 3}}) {
    const Dims channel = {x[1]};
    SCOPED_TRACE(to_string(x));
    check_gradients([](const Inputs& in) { return batch_norm(in[0], {}, {}, in[1], in[2], true); },
                    {{x}, {channel}, {channel}});
    check_gradients([](const Inputs& in) { return batch_norm(in[0], {}, {}, {}, {}, true); }, {{x}});
    check_gradients([](const Inputs& in) { return batch_norm(in[0], {}, {}, in[1], in[2], true); },
                    {{x, -1.0, 1.0, false}, {channel}, {channel}});
  }
}

TEST(GradBatchNorm, Evaluation) {
  for (const Dims& x : {Dims{3, 2, 2, 3}, Dims{4, 2}, Dims{0, 2, 3, 3}}) {
    SCOPED_TRACE(to_string(x));
    check_gradients([](const Inputs& in) { return batch_norm(in[0], in[1], in[2], in[3], in[4], false); },
                    {{x}, {Dims{2}, -1.0, 1.0, false}, {Dims{2}, 0.5, 2.0, false}, {Dims{2}}, {Dims{2}}});
  }
  EXPECT_THROW(batch_norm(zeros({2, 3}), {}, {}, {}, {}, false), InvalidArgument);
}

TEST(GradBatchNorm, RunningStatistics) {
  const Tensor x = tensor<double>({1, 10, 3, 30});
  Tensor mean = zeros({2}, {DType::float64, Device::cpu()});
  Tensor variance = ones({2}, {DType::float64, Device::cpu()});
  const std::uint32_t before = mean.version();
  batch_norm(reshape(x, {2, 2}), mean, variance, {}, {}, true, 0.25);
  // Channel means 2 and 20, unbiased variances 2 and 200.
  EXPECT_EQ(mean.to_vector<double>(), (std::vector<double>{0.5, 5.0}));
  EXPECT_EQ(variance.to_vector<double>(), (std::vector<double>{0.75 + 0.5, 0.75 + 50.0}));
  EXPECT_GT(mean.version(), before);
}

TEST(GradLayerNorm, OverLastDimensions) {
  for (const auto& [x, normalized] :
       std::vector<std::pair<Dims, Dims>>{{{3, 4}, {4}}, {{2, 3, 4}, {4}}, {{2, 3, 4}, {3, 4}}, {{0, 4}, {4}}}) {
    SCOPED_TRACE(to_string(x));
    const Dims sizes = normalized;
    check_gradients([&](const Inputs& in) { return layer_norm(in[0], sizes, in[1], in[2]); }, {{x}, {sizes}, {sizes}});
    check_gradients([&](const Inputs& in) { return layer_norm(in[0], sizes); }, {{x}});
  }
}

}  // namespace
}  // namespace ddp
