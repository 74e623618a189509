#include "ptxvm/ptx_parser_state.h"

#include <algorithm>
#include <bit>

namespace weightpress::ptxvm {
namespace {

constexpr std::uint64_t kMaxAlign = 1024;
constexpr std::uint64_t kMaxVariableBytes = std::uint64_t{1} << 35;
constexpr std::size_t kMaxDimensions = 16;

}  // namespace

bool ParserState::fail(std::uint32_t line, std::string_view message) {
  if (error.empty()) error = "line " + std::to_string(line) + ": " + std::string(message);
  return false;
}

bool ParserState::fail_expected(std::string_view what) {
  const Token& token = lexer.token();
  std::string found;
  if (token.kind == TokenKind::kEnd) {
    found = "the end of the text";
  } else if (token.text.starts_with("/*")) {
    found = "a comment without an end: " + quoted(token.text);
  } else if (token.kind == TokenKind::kBad && token.text.starts_with('"')) {
    found = "a string without an end: " + quoted(token.text);
  } else {
    found = quoted(token.text);
  }
  return fail(token.line, "expected " + std::string(what) + ", not " + found);
}

bool ParserState::expect(char mark) {
  return lexer.take(mark) || fail_expected({std::string("\"") + mark + '"'});
}

bool ParserState::expect_word(std::string_view what, std::string_view& word) {
  if (lexer.token().kind != TokenKind::kWord) return fail_expected(what);
  word = lexer.token().text;
  lexer.advance();
  return true;
}

bool ParserState::expect_integer(std::string_view what, std::int64_t& value) {
  const bool is_negative = lexer.take('-');
  if (lexer.token().kind != TokenKind::kNumber) return fail_expected(what);
  const auto number = number_value(lexer.token().text, is_negative);
  if (!number || number->kind != OperandKind::kInteger) return fail_expected(what);
  value = number->bits;
  lexer.advance();
  return true;
}

bool ParserState::expect_count(std::string_view what, std::uint64_t max, std::uint64_t& count) {
  const Token& token = lexer.token();
  const auto number = token.kind == TokenKind::kNumber ? number_value(token.text) : std::nullopt;
  if (!number || number->kind != OperandKind::kInteger) return fail_expected(what);
  count = static_cast<std::uint64_t>(number->bits);
  if (count == 0 || count > max) {
    return fail(token.line,
                std::string(what) + " is from 1 to " + std::to_string(max) + ", not " + quoted(token.text));
  }
  lexer.advance();
  return true;
}

bool ParserState::expect_new_name(std::string_view& name) {
  if (lexer.token().text == "_") return fail_expected("a name");
  return expect_word("a name", name);
}

bool ParserState::count(std::uint64_t& counter, std::uint64_t more, std::string_view what) {
  counter += more;
  return counter <= kMaxPtxItems || fail(lexer.token().line, "more than " + std::to_string(kMaxPtxItems) +
                                                                 " " + std::string(what) + " in a module");
}

bool ParserState::parse_head(DeclarationHead& head) {
  bool is_pointer = false;  // what follows .ptr is about what it points to
  while (lexer.token().kind == TokenKind::kDotWord) {
    const Token token = lexer.token();
    const std::string_view name = token.text.substr(1);
    lexer.advance();
    if (name == "align") {
      std::uint64_t align = 0;
      if (!expect_count("an alignment", kMaxAlign, align)) return false;
      if (!std::has_single_bit(align)) return fail(token.line, "an alignment is a power of two");
      if (!is_pointer) head.align = static_cast<std::uint32_t>(align);
    } else if (name == "ptr" && head.space == Space::kParam && head.type.bytes != 0) {
      is_pointer = true;
    } else if (name == "attribute") {
      // .managed: for us as any other.
      if (!expect('(')) return false;
      if (!lexer.token().is_dot("managed")) return fail_expected("the attribute .managed");
      lexer.advance();
      if (!expect(')')) return false;
    } else if ((name == "v2" || name == "v4") && head.type.bytes == 0) {
      head.num_lanes = name == "v2" ? 2 : 4;
    } else if (head.type.bytes == 0) {
      head.type = parse_type(name);
      if (head.type.bytes == 0 || head.type.kind == TypeKind::kPredicate) {
        return fail(token.line, "no type of a variable: " + quoted(token.text));
      }
    } else if (!is_pointer || (name != "global" && name != "shared" && name != "const" && name != "local")) {
      return fail(token.line, "in a declaration: " + quoted(token.text) + " is not supported");
    }
  }
  return head.type.bytes != 0 || fail_expected("a type");
}

bool ParserState::parse_declarator(const DeclarationHead& head, Variable& variable,
                                   std::vector<std::uint64_t>& dimensions) {
  variable.space = head.space;
  variable.is_extern = head.is_extern;
  variable.line = lexer.token().line;
  if (!count(num_variables, 1, "variables") || !expect_new_name(variable.name)) return false;
  std::uint64_t bytes = head.type.bytes;
  variable.align = std::max(head.align, 1u);
  if (head.align == 0) variable.align = head.type.bytes * head.num_lanes;
  const auto multiply = [&](std::uint64_t by) {
    if (bytes > kMaxVariableBytes / by) return fail(variable.line, "too large: " + quoted(variable.name));
    bytes *= by;
    return true;
  };
  bool has_size = true;
  dimensions.clear();
  while (lexer.take('[')) {
    if (dimensions.size() == kMaxDimensions) return fail(variable.line, "too many dimensions");
    std::uint64_t size = 0;
    if (dimensions.empty() && lexer.token().is(']')) {
      has_size = false;
    } else if (!expect_count("a size", kMaxVariableBytes, size) || !multiply(size)) {
      return false;
    }
    dimensions.push_back(size);
    if (!expect(']')) return false;
  }
  if (head.num_lanes > 1) {
    dimensions.push_back(head.num_lanes);
    if (!multiply(head.num_lanes)) return false;
  }
  variable.bytes = has_size ? bytes : 0;
  return true;
}

bool ParserState::skip_debug_directive(bool& is_known) {
  const Token& token = lexer.token();
  is_known = true;
  if (token.is_dot("loc") || token.is_dot("file")) {
    lexer.skip_line();
  } else if (token.is_dot("section")) {
    while (!lexer.token().is('{')) {
      const TokenKind kind = lexer.token().kind;
      if (kind != TokenKind::kWord && kind != TokenKind::kDotWord) return fail_expected("\"{\"");
      lexer.advance();
    }
    while (!lexer.token().is('}')) {
      const TokenKind kind = lexer.token().kind;
      if (kind == TokenKind::kEnd || kind == TokenKind::kBad) return fail_expected("\"}\"");
      lexer.advance();
    }
    lexer.advance();
  } else {
    is_known = false;
  }
  return true;
}

}  // namespace weightpress::ptxvm
