// A program outside the tree, built against the installed library.
#include <ddp/core/device.h>
#include <ddp/tensor/tensor.h>

#include <cstdio>

int main() {
  ddp::Tensor x = ddp::full({2, 3}, 1.5);
  double sum = 0;
  for (const double value : x.to_vector<double>()) sum += value;
  std::printf("%s: sum %g, %d CUDA devices\n", x.to_string().c_str(), sum, ddp::device_count(ddp::DeviceType::cuda));
  return sum == 9.0 ? 0 : 1;
}
