#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// Parsing of command lines, the same way for every verb. Errors are one line that quotes the value and
/// says what is allowed.
namespace ddp::tools {

/// The command line is wrong; exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Options of one verb. Values are written to the variables given, which must outlive the call of `parse`.
class Arguments {
 public:
  /// `usage`: what comes after the verb, for the help.
  Arguments(const std::string& verb, const std::string& description, const std::string& usage);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  /// `names` as "-n,--nproc-per-node".
  void required_integer(const std::string& names, int& value, int low, int high, const std::string& help);
  /// As `required_integer`, or the word `word`, which leaves `value` as it is and sets `was_word`.
  void required_integer_or_word(const std::string& names, int& value, int low, int high, const std::string& word,
                                bool& was_word, const std::string& help);
  void integer(const std::string& names, int& value, int low, int high, const std::string& help);
  void number(const std::string& names, double& value, double low, double high, const std::string& help);
  void text(const std::string& names, std::string& value, const std::string& help);
  void flag(const std::string& names, bool& value, const std::string& help);
  /// What remains, from the first word that is no option or from behind "--", goes here as it is.
  void program(std::vector<std::string>& command);

  /// False when only help was asked for, which is then printed. Throws UsageError.
  bool parse(const std::vector<std::string>& words);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::tools
