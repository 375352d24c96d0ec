// main of the GPU tests: exit code 77 (skipped) where there is no GPU. DDP_REQUIRE_GPU=1 makes that a
// failure, for runs that are meant to test one.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "ddp/core/device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (ddp::device_count(ddp::DeviceType::cuda) == 0) {
    const char* required = std::getenv("DDP_REQUIRE_GPU");
    const bool fail = required != nullptr && *required != '\0' && *required != '0';
    std::printf("SKIP REASON: no usable CUDA GPU%s\n", fail ? ", and DDP_REQUIRE_GPU asks for one" : "");
    return fail ? 1 : 77;
  }
  return RUN_ALL_TESTS();
}
