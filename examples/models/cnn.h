#pragma once

#include <ddp/ddp.h>

#include <memory>

namespace examples {

/// conv 1-32 3x3, relu, conv 32-64 3x3, relu, max-pool 2, fc 9216-128, relu, fc 128-10: 1,199,882 parameters.
class Cnn final : public ddp::nn::UnaryModule {
 public:
  static constexpr const char* kName = "cnn";

  Cnn()
      : conv1_(register_module("conv1", std::make_shared<ddp::nn::Conv2d>(1, 32, 3))),
        conv2_(register_module("conv2", std::make_shared<ddp::nn::Conv2d>(32, 64, 3))),
        fc1_(register_module("fc1", std::make_shared<ddp::nn::Linear>(9216, 128))),
        fc2_(register_module("fc2", std::make_shared<ddp::nn::Linear>(128, 10))) {}

  ddp::Tensor forward(const ddp::Tensor& images) override {
    ddp::Tensor x = ddp::relu(conv1_->forward(images));
    x = ddp::max_pool2d(ddp::relu(conv2_->forward(x)), 2);
    return fc2_->forward(ddp::relu(fc1_->forward(ddp::flatten(x, 1))));
  }

 private:
  std::shared_ptr<ddp::nn::Conv2d> conv1_;
  std::shared_ptr<ddp::nn::Conv2d> conv2_;
  std::shared_ptr<ddp::nn::Linear> fc1_;
  std::shared_ptr<ddp::nn::Linear> fc2_;
};

}  // namespace examples
