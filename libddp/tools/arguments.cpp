#include "arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <type_traits>

#include "ddp/core/error.h"

namespace ddp::tools {

namespace {

class Formatter : public CLI::Formatter {
 public:
  explicit Formatter(std::string usage) : usage_(std::move(usage)) {}
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override { return usage_ + "\n"; }

 private:
  std::string usage_;
};

}  // namespace

struct Arguments::Impl {
  Impl(const std::string& verb, const std::string& description, std::string usage_text) : app(description), verb(verb) {
    app.set_help_flag("-h,--help", "Print this help and exit");
    app.formatter(std::make_shared<Formatter>("Usage: ddp " + verb + " " + std::move(usage_text)));
  }

  [[noreturn]] void fail(const std::string& text) const {
    throw UsageError(concat("ddp ", verb, ": ", text, " (ddp ", verb, " --help tells more)"));
  }

  // CLI11 would take "4x" for a wrong type without saying what is allowed.
  template <class T>
  CLI::Option* ranged(const std::string& names, T& value, T low, T high, const std::string& help) {
    const auto convert = [this, names, &value, low, high](const std::string& text) {
      T parsed{};
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
      // Written so that a NaN fails.
      if (error != std::errc() || end != text.data() + text.size() || !(parsed >= low && parsed <= high)) {
        fail(concat(names, " is '", text, "'; allowed: ", std::is_integral_v<T> ? "a whole number" : "a number",
                    " from ", low, " to ", high));
      }
      value = parsed;
    };
    return app.add_option_function<std::string>(names, convert, help)->type_name(std::is_integral_v<T> ? "N" : "X");
  }

  CLI::App app;
  std::string verb;
  std::vector<std::string>* command = nullptr;
  std::vector<std::string> required;
  std::vector<CLI::Option*> required_options;
};

Arguments::Arguments(const std::string& verb, const std::string& description, const std::string& usage)
    : impl_(std::make_unique<Impl>(verb, description, usage)) {}
Arguments::~Arguments() = default;

void Arguments::required_integer(const std::string& names, int& value, int low, int high, const std::string& help) {
  // Not CLI11's own check, which would come before the help of other mistakes.
  impl_->required_options.push_back(impl_->ranged(names, value, low, high, help));
  impl_->required.push_back(concat(names, " is missing; allowed: a whole number from ", low, " to ", high));
}

void Arguments::required_integer_or_word(const std::string& names, int& value, int low, int high,
                                         const std::string& word, bool& was_word, const std::string& help) {
  const std::string allowed = concat("a whole number from ", low, " to ", high, ", or ", word);
  const auto convert = [this, names, &value, low, high, word, &was_word, allowed](const std::string& text) {
    was_word = text == word;
    if (was_word) return;
    int parsed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (error != std::errc() || end != text.data() + text.size() || parsed < low || parsed > high) {
      impl_->fail(concat(names, " is '", text, "'; allowed: ", allowed));
    }
    value = parsed;
  };
  impl_->required_options.push_back(
      impl_->app.add_option_function<std::string>(names, convert, help)->type_name(concat("N|", word)));
  impl_->required.push_back(concat(names, " is missing; allowed: ", allowed));
}

void Arguments::integer(const std::string& names, int& value, int low, int high, const std::string& help) {
  impl_->ranged(names, value, low, high, help);
}

void Arguments::number(const std::string& names, double& value, double low, double high, const std::string& help) {
  impl_->ranged(names, value, low, high, help);
}

void Arguments::text(const std::string& names, std::string& value, const std::string& help) {
  impl_->app.add_option(names, value, help)->type_name("TEXT");
}

void Arguments::flag(const std::string& names, bool& value, const std::string& help) {
  impl_->app.add_flag(names, value, help);
}

void Arguments::program(std::vector<std::string>& command) {
  impl_->command = &command;
  impl_->app.prefix_command();
}

bool Arguments::parse(const std::vector<std::string>& words) {
  CLI::App& app = impl_->app;
  // What is behind "--" is not for CLI11 to look at.
  const auto separator = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> own(words.begin(), separator);
  std::reverse(own.begin(), own.end());  // the order that CLI11 takes them in
  try {
    app.parse(std::move(own));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    impl_->fail(error.what());
  }
  std::vector<std::string> rest = app.remaining();
  if (!rest.empty() && rest.front().starts_with('-')) impl_->fail(concat("unknown option '", rest.front(), "'"));
  for (std::size_t i = 0; i < impl_->required.size(); ++i) {
    if (impl_->required_options[i]->count() == 0) impl_->fail(impl_->required[i]);
  }
  if (impl_->command == nullptr) {
    if (!rest.empty()) impl_->fail(concat("unexpected '", rest.front(), "'"));
    return true;
  }
  if (separator != words.end()) {
    if (!rest.empty()) rest.emplace_back("--");  // it came after the program: one of its arguments
    rest.insert(rest.end(), separator + 1, words.end());
  }
  if (rest.empty()) impl_->fail("no program given");
  *impl_->command = std::move(rest);
  return true;
}

}  // namespace ddp::tools
