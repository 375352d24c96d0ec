// Fits a straight line to points that are spread over the ranks: a program outside libddp's tree.
#include <ddp/ddp.h>

#include <cmath>
#include <cstdio>

int main() try {  // ddp run -n 2 -- ./fit_line
  const auto group = ddp::comm::init_process_group();
  const auto line = std::make_shared<ddp::nn::Linear>(1, 1);
  ddp::parallel::DistributedDataParallel model(line, group);
  ddp::optim::SGD optimizer(model.parameters(), {.lr = 0.2});

  // 32 points a rank on y = 3x + 2, with x from -1 to 1 over all ranks.
  std::vector<float> x, y;
  for (int i = 0; i < 32; ++i) {
    x.push_back(2.0F * static_cast<float>(i * group->size() + group->rank()) / static_cast<float>(32 * group->size()) -
                1);
    y.push_back(3 * x.back() + 2);
  }
  const ddp::Tensor input = ddp::tensor(x, {32, 1});
  const ddp::Tensor target = ddp::tensor(y, {32, 1});
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    ddp::mse_loss(model(input), target).backward();
    optimizer.step();
  }

  const auto parameters = model.named_parameters();  // weight, bias: the same on all ranks
  const float slope = parameters[0].second.item<float>();
  const float offset = parameters[1].second.item<float>();
  if (group->rank() == 0) std::printf("%d ranks: y = %.3f x + %.3f\n", group->size(), slope, offset);
  return std::abs(slope - 3) < 1e-3 && std::abs(offset - 2) < 1e-3 ? 0 : 1;
} catch (const ddp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
