// Trains a multi-layer perceptron on Fashion-MNIST:  ddp run -n 2 -- ./train_mlp
#include "common/train.h"
#include "models/mlp.h"

int main(int argc, char** argv) {
  return examples::train_main<examples::Mlp>(argc, argv, "Trains an MLP (784-1024-1024-10) on Fashion-MNIST.");
}
