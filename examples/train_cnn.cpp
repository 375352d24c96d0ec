// Trains a convolutional network on Fashion-MNIST:  ddp run -n 2 -- ./train_cnn
#include "common/train.h"
#include "models/cnn.h"

int main(int argc, char** argv) {
  return examples::train_main<examples::Cnn>(argc, argv,
                                             "Trains a CNN (two convolutions, two linear layers) on Fashion-MNIST.");
}
