#include <ddp/ddp.h>

#include <iostream>

struct Net : ddp::nn::Module {
  std::shared_ptr<ddp::nn::Conv2d> conv = register_module("conv", std::make_shared<ddp::nn::Conv2d>(1, 16, 3));
  std::shared_ptr<ddp::nn::Linear> fc = register_module("fc", std::make_shared<ddp::nn::Linear>(16 * 13 * 13, 10));
  ddp::Tensor forward(const ddp::Tensor& x) {
    return fc->forward(ddp::flatten(ddp::max_pool2d(ddp::relu(conv->forward(x)), 2), 1));
  }
};

int main() {  // ddp run -n 2 -- ./quickstart
  auto group = ddp::comm::init_process_group();
  auto net = std::make_shared<Net>();
  net->to(group->device());
  ddp::parallel::DistributedDataParallel model(net, group);  // every rank starts from rank 0's weights
  ddp::data::FashionMNIST train(ddp::data::fashion_mnist_root());
  ddp::data::DistributedSampler sampler(train.size(), group->size(), group->rank());
  ddp::data::DataLoader loader(train, sampler, {.batch_size = 64, .device = group->device()});
  ddp::optim::SGD optimizer(model.parameters(), {.lr = 0.05, .momentum = 0.9});
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    ddp::Tensor loss;
    for (auto [input, target] : loader) {
      optimizer.zero_grad();
      loss = ddp::cross_entropy(model(input), target);
      loss.backward();  // a bucket is summed over the ranks as soon as it is full, while backward goes on
      optimizer.step();
    }
    if (group->rank() == 0) std::cout << "epoch " << epoch << " loss " << loss.item<float>() << std::endl;
  }
}
