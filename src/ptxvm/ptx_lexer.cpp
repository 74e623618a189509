#include "ptxvm/ptx_lexer.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <system_error>

namespace weightpress::ptxvm {
namespace {

constexpr std::size_t kMaxQuoted = 60;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_name(char c) {
  return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}
bool is_printable(char c) {
  return c > ' ' && c <= '~';
}

/// All of the text, in this base.
std::optional<std::uint64_t> unsigned_value(std::string_view text, int base) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value, base);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

std::optional<Number> float_bits(OperandKind kind, std::string_view digits, std::size_t num_digits) {
  const auto value = digits.size() == num_digits ? unsigned_value(digits, 16) : std::nullopt;
  if (!value) return std::nullopt;
  return Number{kind, static_cast<std::int64_t>(*value)};
}

std::optional<Number> fraction(std::string_view text, bool is_negative) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return Number{OperandKind::kFloat64, std::bit_cast<std::int64_t>(is_negative ? -value : value)};
}

}  // namespace

Lexer::Lexer(std::string_view text) : text_(text) {
  advance();
}

void Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
      ++position_;
    } else if (text_.substr(position_, 2) == "//") {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (text_.substr(position_, 2) == "/*") {
      const std::size_t end = text_.find("*/", position_ + 2);
      if (end == std::string_view::npos) return;
      line_ += static_cast<std::uint32_t>(std::count(text_.begin() + position_, text_.begin() + end, '\n'));
      position_ = end + 2;
    } else {
      return;
    }
  }
}

std::size_t Lexer::token_end(std::size_t begin, TokenKind& kind) const {
  const auto at = [&](std::size_t i) { return i < text_.size() ? text_[i] : '\0'; };
  const char first = text_[begin];
  std::size_t end = begin + 1;
  if (is_digit(first)) {
    kind = TokenKind::kNumber;
    // The sign of a decimal exponent belongs to the number; "e" is a digit elsewhere.
    const bool is_decimal = first != '0' || !is_letter(at(end));
    for (; is_name(at(end)) || at(end) == '.'; ++end) {
      if (is_decimal && (at(end) == 'e' || at(end) == 'E') && (at(end + 1) == '-' || at(end + 1) == '+'))
        ++end;
    }
  } else if (is_name(first) || (first == '%' && is_name(at(end)))) {
    kind = TokenKind::kWord;
    while (is_name(at(end))) ++end;
  } else if (first == '.' && is_name(at(end))) {
    kind = TokenKind::kDotWord;
    while (is_name(at(end)) || (at(end) == ':' && at(end + 1) == ':' && is_name(at(end + 2)))) {
      end += at(end) == ':' ? 2 : 1;
    }
  } else if (first == '"') {
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\n') {
      end += at(end) == '\\' && at(end + 1) != '\n' ? 2 : 1;
    }
    kind = at(end) == '"' ? TokenKind::kString : TokenKind::kBad;
    end = std::min(end + (kind == TokenKind::kString ? 1 : 0), text_.size());
  } else if (first == '/' && at(end) == '*') {
    kind = TokenKind::kBad;
    end = std::min(text_.find('\n', begin), text_.size());
  } else {
    kind = is_printable(first) ? TokenKind::kMark : TokenKind::kBad;
  }
  return end;
}

void Lexer::advance() {
  last_end_ = position_;
  skip_blanks();
  token_ = {TokenKind::kEnd, line_, text_.substr(position_, 0)};
  if (position_ == text_.size()) return;
  const std::size_t end = token_end(position_, token_.kind);
  token_.text = text_.substr(position_, end - position_);
  position_ = end;
}

bool Lexer::take(char mark) {
  if (!token_.is(mark)) return false;
  advance();
  return true;
}

void Lexer::skip_line() {
  position_ = std::min(text_.find('\n', position_), text_.size());
  advance();
}

std::string_view Lexer::text_since(const Token& first) const {
  const auto begin = static_cast<std::size_t>(first.text.data() - text_.data());
  return text_.substr(begin, last_end_ - begin);
}

std::optional<Number> number_value(std::string_view text, bool is_negative) {
  const char kind = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  if (kind == 'f' || kind == 'd') {
    if (is_negative) return std::nullopt;
    return kind == 'f' ? float_bits(OperandKind::kFloat32, text.substr(2), 8)
                       : float_bits(OperandKind::kFloat64, text.substr(2), 16);
  }
  if (kind != 'x' && text.find_first_of(".eE") != std::string_view::npos) return fraction(text, is_negative);
  if (text.ends_with('U')) text.remove_suffix(1);
  std::optional<std::uint64_t> value;
  if (kind == 'x' || kind == 'b') {
    if (text.size() > 2) value = unsigned_value(text.substr(2), kind == 'x' ? 16 : 2);
  } else {
    value = unsigned_value(text, text.size() > 1 && text[0] == '0' ? 8 : 10);
  }
  if (!value || (is_negative && *value > std::uint64_t{1} << 63)) return std::nullopt;
  return Number{OperandKind::kInteger, static_cast<std::int64_t>(is_negative ? 0 - *value : *value)};
}

std::string quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result = "\"";
  std::size_t num = 0;
  bool was_blank = false;
  for (const char c : text) {
    const bool is_blank = c == ' ' || (c >= '\t' && c <= '\r');
    if (is_blank && was_blank) continue;
    was_blank = is_blank;
    if (num++ == kMaxQuoted) return result + "...\"";
    if (is_blank || is_printable(c)) {
      result += is_blank ? ' ' : c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result + '"';
}

}  // namespace weightpress::ptxvm
