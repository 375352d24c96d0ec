#include "ddp/core/error.h"

#include <gtest/gtest.h>

#include "ddp/core/device.h"
#include "ddp/core/dtype.h"

namespace ddp {
namespace {

TEST(Error, JoinsNumbersTextsAndOwnTypes) {
  EXPECT_EQ(concat("a ", 1, " ", 0.5, " ", true, " ", Device::cuda(2), " ", DType::bfloat16, 'x'),
            "a 1 0.5 true cuda:2 bfloat16x");
  EXPECT_EQ(concat(1e-8), "1e-08");
  EXPECT_EQ(concat(0.1F), "0.1");
}

TEST(Error, CheckThrowsTheKindAsked) {
  EXPECT_NO_THROW(DDP_CHECK(1 + 1 == 2, InvalidArgument, "never"));
  EXPECT_THROW(DDP_CHECK(false, IoError, "file ", 7), IoError);
  EXPECT_THROW(DDP_CHECK(false, TimeoutError, "late"), CommError);
  EXPECT_THROW(DDP_CHECK(false, ReductionError, "gradient"), Error);
}

TEST(Error, LocationHasNoFolders) {
  EXPECT_EQ(to_string(std::source_location::current()).rfind("error_test.cpp:", 0), 0U);
}

}  // namespace
}  // namespace ddp
