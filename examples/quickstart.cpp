#include <ddp/ddp.h>

#include <iostream>
using namespace ddp;

int main() try {  // ddp run -n 2 -- ./quickstart
  auto group = comm::init_process_group();
  auto net = std::make_shared<nn::Sequential>(std::make_shared<nn::Conv2d>(1, 16, 3), std::make_shared<nn::ReLU>(),
                                              std::make_shared<nn::MaxPool2d>(2), std::make_shared<nn::Flatten>(),
                                              std::make_shared<nn::Linear>(16 * 13 * 13, 10));
  net->to(group->device());
  parallel::DistributedDataParallel model(net, group);  // every rank starts from rank 0's weights
  data::FashionMNIST train(data::fashion_mnist_root());
  data::DistributedSampler sampler(train.size(), group->size(), group->rank());
  data::DataLoader loader(train, sampler, {.batch_size = 64, .device = group->device()});
  optim::SGD optimizer(model.parameters(), {.lr = 0.05, .momentum = 0.9});
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    Tensor loss;
    for (auto [input, target] : loader) {
      optimizer.zero_grad();
      loss = cross_entropy(model(input), target);
      loss.backward();  // a bucket is summed over the ranks as soon as it is full, while backward goes on
      optimizer.step();
    }
    if (group->rank() == 0) std::cout << "epoch " << epoch << " loss " << loss.item<float>() << std::endl;
  }
} catch (const Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
