#pragma once

#include <ddp/ddp.h>

#include <memory>

namespace examples {

/// 784-1024-1024-10 with relu: 1,863,690 parameters.
class Mlp final : public ddp::nn::UnaryModule {
 public:
  static constexpr const char* kName = "mlp";

  Mlp()
      : fc1_(register_module("fc1", std::make_shared<ddp::nn::Linear>(784, 1024))),
        fc2_(register_module("fc2", std::make_shared<ddp::nn::Linear>(1024, 1024))),
        fc3_(register_module("fc3", std::make_shared<ddp::nn::Linear>(1024, 10))) {}

  ddp::Tensor forward(const ddp::Tensor& images) override {
    const ddp::Tensor x = ddp::flatten(images, 1);
    return fc3_->forward(ddp::relu(fc2_->forward(ddp::relu(fc1_->forward(x)))));
  }

 private:
  std::shared_ptr<ddp::nn::Linear> fc1_;
  std::shared_ptr<ddp::nn::Linear> fc2_;
  std::shared_ptr<ddp::nn::Linear> fc3_;
};

}  // namespace examples
