#pragma once

#include <initializer_list>
#include <string>

#include "gtest/gtest.h"

namespace ddp::test {

/// Expects that `call` throws Kind with all the texts in its message.
template <class Kind, class Call>
void expect_error(Call&& call, std::initializer_list<std::string> texts) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Kind& error) {
    for (const std::string& text : texts) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << "no '" << text << "' in: " << error.what();
    }
  }
}

}  // namespace ddp::test
