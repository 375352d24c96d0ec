#pragma once

#include <concepts>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

/// Errors of libddp. Everything the library throws derives from ddp::Error. The text names the value
/// that was given, what is allowed and, where one is involved, the rank, parameter or file.
namespace ddp {

/// Base of every exception the library throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument is outside what the call allows (shape, dtype, device, range, option).
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// The autograd graph was used in a way that has no gradient (backward twice, in-place change of a
/// saved tensor, non-scalar root, ...).
class AutogradError : public Error {
 public:
  using Error::Error;
};

/// A file, dataset or socket address cannot be read, written or parsed.
class IoError : public Error {
 public:
  using Error::Error;
};

/// An allocation was refused; the text gives the bytes asked for, in use and reserved.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A device runtime call (CUDA, cuBLAS, cuDNN) failed; the text gives expression, file and line.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A backend or feature that this build does not contain.
class NotAvailable : public Error {
 public:
  using Error::Error;
};

/// A collective, the rendezvous or the store failed. After it the group must not be used again.
class CommError : public Error {
 public:
  using Error::Error;
};

/// A wait reached its deadline. State afterwards as for CommError.
class TimeoutError : public CommError {
 public:
  using CommError::CommError;
};

/// Gradients of this backward must not be used: a parameter got no gradient, was reduced twice, or
/// the ranks disagree. The text names parameters and ranks. No optimiser has changed a weight.
class ReductionError : public Error {
 public:
  using Error::Error;
};

namespace detail {

inline void append(std::string& out, std::string_view text) { out += text; }
inline void append(std::string& out, const char* text) { out += text; }
inline void append(std::string& out, const std::string& text) { out += text; }
inline void append(std::string& out, bool value) { out += value ? "true" : "false"; }
inline void append(std::string& out, char value) { out += value; }
template <std::integral T>
void append(std::string& out, T value) {
  out += std::to_string(value);
}
/// Shortest decimal form that still reads naturally ("0.05", "1e-05").
void append(std::string& out, double value);
void append(std::string& out, float value);
template <class T>
  requires requires(const T& value) {
    { to_string(value) } -> std::convertible_to<std::string>;
  }
void append(std::string& out, const T& value) {
  out += to_string(value);
}

template <class Kind, class... Args>
[[noreturn]] void fail(const Args&... args) {
  std::string text;
  (append(text, args), ...);
  throw Kind(text);
}

}  // namespace detail

/// Joins its arguments into one string; types with a `to_string` found by argument look-up work too.
template <class... Args>
std::string concat(const Args&... args) {
  std::string text;
  (detail::append(text, args), ...);
  return text;
}

/// "file.cpp:12" of a source location, without the folders.
std::string to_string(const std::source_location& where);

}  // namespace ddp

/// Throws `Kind` with the joined remaining arguments when `condition` is false.
#define DDP_CHECK(condition, Kind, ...)       \
  do {                                        \
    if (!(condition)) [[unlikely]] {          \
      ::ddp::detail::fail<Kind>(__VA_ARGS__); \
    }                                         \
  } while (false)
