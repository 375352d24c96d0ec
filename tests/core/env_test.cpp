#include "core/env.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "ddp/core/error.h"

namespace ddp::core {
namespace {

TEST(Env, ReadsWholeNumbersOnly) {
  setenv("DDP_TEST_NUMBER", "12", 1);
  EXPECT_EQ(env_int("DDP_TEST_NUMBER", 0, 12), 12);
  unsetenv("DDP_TEST_NUMBER");
  EXPECT_EQ(env_int("DDP_TEST_NUMBER", 0, 12), std::nullopt);
  EXPECT_EQ(env_string("DDP_TEST_NUMBER"), std::nullopt);
}

TEST(Env, BadNumbersNameVariableValueAndRange) {
  for (const char* value : {"", " 3", "3 ", "abc", "13", "-1", "1e1", "0x3", "99999999999999999999"}) {
    setenv("DDP_TEST_NUMBER", value, 1);
    try {
      env_int("DDP_TEST_NUMBER", 0, 12);
      FAIL() << value;
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("DDP_TEST_NUMBER"), std::string::npos);
      EXPECT_NE(text.find("'" + std::string(value) + "'"), std::string::npos) << text;
      EXPECT_NE(text.find("0 to 12"), std::string::npos) << text;
    }
  }
  unsetenv("DDP_TEST_NUMBER");
}

}  // namespace
}  // namespace ddp::core
