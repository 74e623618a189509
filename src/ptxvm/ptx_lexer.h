// PTX text to tokens (PTX ISA 9.0, chapter 4), one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ptxvm/ptx_module.h"

namespace weightpress::ptxvm {

enum class TokenKind : std::uint8_t {
  kEnd,
  kWord,     ///< mov, %r1, $L__BB0_2, _
  kDotWord,  ///< .u32, .L1::no_allocate: a directive, a modifier, a suffix
  kNumber,   ///< begins with a digit; number_value() judges the rest
  kString,   ///< with its quotes
  kMark,     ///< one character
  kBad       ///< a byte that PTX has no use for; a comment or string without an end
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::uint32_t line = 1;
  std::string_view text;

  bool is(char mark) const { return kind == TokenKind::kMark && text.front() == mark; }
  bool is_dot(std::string_view name) const { return kind == TokenKind::kDotWord && text.substr(1) == name; }
};

class Lexer {
 public:
  /// The text must outlive the lexer and all its tokens.
  explicit Lexer(std::string_view text);

  const Token& token() const { return token_; }
  void advance();
  /// Advances over the mark if it is there.
  bool take(char mark);
  /// Advances over the rest of the line that the token stands in.
  void skip_line();
  /// From the beginning of a token to the end of the last one that was advanced over.
  std::string_view text_since(const Token& first) const;

 private:
  void skip_blanks();
  std::size_t token_end(std::size_t begin, TokenKind& kind) const;

  std::string_view text_;
  std::size_t position_ = 0;  ///< after token_
  std::size_t last_end_ = 0;  ///< of the token before token_
  std::uint32_t line_ = 1;    ///< at position_
  Token token_;
};

/// The value of a literal: kInteger, kFloat32 or kFloat64.
struct Number {
  OperandKind kind = OperandKind::kInteger;
  std::int64_t bits = 0;
};

/// Nothing if it is no literal, or has more than 64 bits. A minus may stand before integers and decimal
/// fractions.
std::optional<Number> number_value(std::string_view text, bool is_negative = false);

/// Text for a message: in quotes, printable, cut after 60 characters.
std::string quoted(std::string_view text);

}  // namespace weightpress::ptxvm
