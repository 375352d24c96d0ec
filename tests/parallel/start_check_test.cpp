#include "parallel/start_check.h"

#include <gtest/gtest.h>

namespace {

using namespace ddp;
using namespace ddp::parallel;

TensorDescription parameter(const std::string& name, const Dims& sizes, DType dtype = DType::float32) {
  return {name, sizes, contiguous_strides(sizes), dtype, true};
}

Description model() {
  Description description;
  description.subject = "test";
  description.parameters = {parameter("fc.weight", {5, 3}), parameter("fc.bias", {5})};
  description.buffers = {parameter("bn.mean", {5})};
  description.settings = {{"lanes", "1"}};
  return description;
}

TEST(FirstDifference, NoneForEqualModels) { EXPECT_EQ(first_difference(model(), 0, model(), 1), ""); }

TEST(FirstDifference, Sizes) {
  Description other = model();
  other.parameters[0] = parameter("fc.weight", {5, 2});
  EXPECT_EQ(first_difference(model(), 0, other, 3),
            "sizes of parameter 'fc.weight': [5, 3] on rank 0, [5, 2] on rank 3");
}

TEST(FirstDifference, MissingLast) {
  Description other = model();
  other.parameters.pop_back();
  EXPECT_EQ(first_difference(model(), 0, other, 1),
            "parameter 1: 'fc.bias' [5] float32 on rank 0, none on rank 1 (2 parameters on rank 0, 1 on rank 1)");
}

TEST(FirstDifference, MissingInTheMiddle) {
  Description other = model();
  other.parameters.erase(other.parameters.begin());
  EXPECT_EQ(first_difference(model(), 0, other, 1),
            "parameter 0: 'fc.weight' [5, 3] float32 on rank 0, 'fc.bias' [5] float32 on rank 1 (2 parameters on rank "
            "0, 1 on rank 1)");
}

TEST(FirstDifference, DtypeStridesRequiresGradOrderBuffersOptions) {
  Description other = model();
  other.parameters[1].dtype = DType::float64;
  EXPECT_EQ(first_difference(model(), 0, other, 1),
            "dtype of parameter 'fc.bias': float32 on rank 0, float64 on rank 1");
  other = model();
  other.parameters[0].strides = {1, 5};
  EXPECT_EQ(first_difference(model(), 0, other, 1),
            "strides of parameter 'fc.weight': [3, 1] on rank 0, [1, 5] on rank 1");
  other = model();
  other.parameters[1].requires_grad = false;
  EXPECT_EQ(first_difference(model(), 0, other, 1),
            "requires_grad of parameter 'fc.bias': true on rank 0, false on rank 1");
  other = model();
  std::swap(other.parameters[0], other.parameters[1]);
  EXPECT_EQ(first_difference(model(), 0, other, 2),
            "parameter 0: 'fc.weight' [5, 3] float32 on rank 0, 'fc.bias' [5] float32 on rank 2");
  other = model();
  other.buffers.push_back(parameter("extra", {1}));
  EXPECT_EQ(first_difference(model(), 0, other, 1),
            "buffer 1: none on rank 0, 'extra' [1] float32 on rank 1 (1 buffers on rank 0, 2 on rank 1)");
  other = model();
  other.settings = {{"lanes", "2"}};
  EXPECT_EQ(first_difference(model(), 0, other, 1), "option lanes: 1 on rank 0, 2 on rank 1");
}

}  // namespace
