// Result<T>: a value, or why there is none. Bad input is an ordinary result, not an exception.
//
// The member names are those of std::expected (C++23), so that it can take over once the compilers have it.
#pragma once

#include <cassert>
#include <optional>
#include <utility>
#include <variant>

#include <weightpress/error.h>

namespace weightpress {

/// Wraps an error on its way into a Result, as std::unexpected does.
class Unexpected {
 public:
  explicit Unexpected(ErrorDetails error) : error_(std::move(error)) {}
  Unexpected(ErrorCode code, std::string message) : error_{code, std::move(message)} {}
  ErrorDetails& error() { return error_; }

 private:
  ErrorDetails error_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Unexpected failure) : state_(std::in_place_index<1>, std::move(failure.error())) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & { return has_value() ? *std::get_if<0>(&state_) : throw Error(*std::get_if<1>(&state_)); }
  T&& value() && { return std::move(value()); }
  const T& value() const& {
    return has_value() ? *std::get_if<0>(&state_) : throw Error(*std::get_if<1>(&state_));
  }
  T& operator*() & { return assert(has_value()), *std::get_if<0>(&state_); }
  const T& operator*() const& { return assert(has_value()), *std::get_if<0>(&state_); }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

  const ErrorDetails& error() const { return assert(!has_value()), *std::get_if<1>(&state_); }
  ErrorDetails& error() { return assert(!has_value()), *std::get_if<1>(&state_); }

 private:
  std::variant<T, ErrorDetails> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Unexpected failure) : error_(std::move(failure.error())) {}

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  void value() const {
    if (error_) throw Error(*error_);
  }
  const ErrorDetails& error() const { return assert(error_), *error_; }
  ErrorDetails& error() { return assert(error_), *error_; }

 private:
  std::optional<ErrorDetails> error_;
};

}  // namespace weightpress
