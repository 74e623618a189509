#include "ptxvm/ptx_parser.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "ptxvm/ptx_parser_state.h"

namespace weightpress::ptxvm {
namespace {

constexpr std::uint64_t kMaxThreads = std::numeric_limits<std::uint32_t>::max();

/// Module scope (PTX ISA 9.0, sections 5.4, 11.1 to 11.5).
class ModuleParser {
 public:
  explicit ModuleParser(ParserState& state) : state_(state), lexer_(state.lexer), module_(state.module) {}

  bool parse();

 private:
  bool parse_preamble();
  bool parse_target();
  bool parse_item();
  bool parse_variables(DeclarationHead head);
  bool parse_initialiser(Variable& variable, const DeclarationHead& head,
                         const std::vector<std::uint64_t>& dimensions);
  bool parse_value(Variable& variable, Type type, std::uint64_t offset_bytes);
  bool parse_address(Variable& variable, Type type, std::uint64_t offset_bytes);
  bool declare(const Variable& variable, std::uint32_t& index);
  bool parse_function(bool is_entry);
  bool parse_parameters(Function& function, std::uint32_t& num);
  bool parse_function_directives(Function& function);
  bool parse_threads(std::array<std::uint32_t, 3>& threads);
  bool begin_function(const Function& function, std::uint32_t& index);

  ParserState& state_;
  Lexer& lexer_;
  Module& module_;
};

bool ModuleParser::parse() {
  if (!parse_preamble()) return false;
  while (lexer_.token().kind != TokenKind::kEnd) {
    if (!parse_item()) return false;
  }
  for (const ParserState::Callee& callee : state_.callees) {
    if (!state_.functions.contains(callee.name)) {
      return state_.fail(callee.line, "no function is called " + quoted(callee.name));
    }
  }
  return true;
}

bool ModuleParser::parse_preamble() {
  if (!lexer_.token().is_dot("version")) return state_.fail_expected("\".version\"");
  lexer_.advance();
  module_.version = lexer_.token().text;
  const std::size_t point = module_.version.find('.');
  if (lexer_.token().kind != TokenKind::kNumber || point == 0 || point == std::string_view::npos ||
      point + 1 == module_.version.size() ||
      module_.version.find_first_not_of("0123456789", point + 1) != std::string_view::npos ||
      module_.version.find_first_not_of("0123456789") != point) {
    return state_.fail_expected("a version");
  }
  lexer_.advance();
  if (!lexer_.token().is_dot("target")) return state_.fail_expected("\".target\"");
  if (!parse_target()) return false;
  // Without it addresses would have 32 bits.
  if (!lexer_.token().is_dot("address_size")) return state_.fail_expected("\".address_size 64\"");
  lexer_.advance();
  if (lexer_.token().text != "64") return state_.fail_expected("addresses of 64 bits");
  lexer_.advance();
  return true;
}

bool ModuleParser::parse_target() {
  lexer_.advance();
  if (!state_.expect_word("a target", module_.target)) return false;
  std::string_view option;
  while (lexer_.take(',')) {
    if (!state_.expect_word("an option of .target", option)) return false;
  }
  return true;
}

bool ModuleParser::parse_item() {
  bool is_known = false;
  if (!state_.skip_debug_directive(is_known)) return false;
  if (is_known || lexer_.take(';')) return true;
  if (lexer_.token().is_dot("pragma")) {
    lexer_.advance();
    if (lexer_.token().kind != TokenKind::kString) return state_.fail_expected("a string");
    lexer_.advance();
    return state_.expect(';');
  }

  DeclarationHead head;
  const Token linkage = lexer_.token();
  head.is_extern = linkage.is_dot("extern");
  if (head.is_extern || linkage.is_dot("visible") || linkage.is_dot("weak") || linkage.is_dot("common")) {
    lexer_.advance();
  }
  const Token token = lexer_.token();
  if (token.kind != TokenKind::kDotWord) return state_.fail_expected("a directive");
  const std::string_view name = token.text.substr(1);
  if (name == "entry" || name == "func") {
    lexer_.advance();
    return parse_function(name == "entry");
  }
  if (name == "global" || name == "const" || name == "shared") {
    lexer_.advance();
    head.space = name == "global" ? Space::kGlobal : name == "const" ? Space::kConst : Space::kShared;
    return parse_variables(head);
  }
  return state_.fail(token.line, "at module scope: " + quoted(token.text) + " is not supported");
}

bool ModuleParser::parse_variables(DeclarationHead head) {
  if (!state_.parse_head(head)) return false;
  std::vector<std::uint64_t> dimensions;
  do {
    Variable variable;
    std::uint32_t index = 0;
    if (!state_.parse_declarator(head, variable, dimensions) || !declare(variable, index)) return false;
    if (lexer_.take('=')) {
      if (head.is_extern || head.space == Space::kShared) {
        return state_.fail(variable.line, "may not have a value: " + quoted(variable.name));
      }
      if (!parse_initialiser(variable, head, dimensions)) return false;
    }
    if (variable.bytes == 0 && !head.is_extern) {
      return state_.fail(variable.line, "an array without a size: " + quoted(variable.name));
    }
    // .extern only declares: often, before and after what it declares.
    Variable& declared = module_.variables[index];
    if (declared.name.empty() || declared.is_extern) declared = std::move(variable);
  } while (lexer_.take(','));
  return state_.expect(';');
}

/// Values may hold the address of the variable itself.
bool ModuleParser::declare(const Variable& variable, std::uint32_t& index) {
  const auto [place, is_new] =
      state_.variables.try_emplace(variable.name, static_cast<std::uint32_t>(module_.variables.size()));
  index = place->second;
  if (state_.functions.contains(variable.name) ||
      (!is_new && !variable.is_extern && !module_.variables[index].is_extern)) {
    return state_.fail(variable.line, "declared twice: " + quoted(variable.name));
  }
  if (is_new) module_.variables.emplace_back();
  return true;
}

/// "= 1" or "= {{1, 2}, {3}}"; values stand where they would in C.
bool ModuleParser::parse_initialiser(Variable& variable, const DeclarationHead& head,
                                     const std::vector<std::uint64_t>& dimensions) {
  if (dimensions.empty()) return parse_value(variable, head.type, 0);
  // Elements that one brace of each depth holds; the outermost of "[]" holds any number.
  std::vector<std::uint64_t> extents(dimensions.size());
  std::uint64_t extent = 1;
  for (std::size_t i = dimensions.size(); i-- > 0;) extents[i] = extent *= dimensions[i];
  if (dimensions.front() == 0) extents.front() = kMaxPtxBytes;

  std::vector<std::uint64_t> ends;  // of the open braces
  std::uint64_t next = 0;           // element
  if (!lexer_.token().is('{')) return state_.fail_expected("\"{\"");
  do {
    const std::uint32_t line = lexer_.token().line;
    const bool opens = lexer_.take('{');
    if (opens) {
      if (ends.size() == extents.size()) return state_.fail(line, "too many braces in a value");
      extent = extents[ends.size()];
      if (!ends.empty() && (next + extent > ends.back() || next % extent != 0)) {
        return state_.fail(line, "a brace is not where an array begins");
      }
      ends.push_back(next + extent);
    } else {
      if (next >= ends.back()) {
        return state_.fail(line, "too many values for " + quoted(variable.name));
      }
      if (!parse_value(variable, head.type, next * head.type.bytes)) return false;
      ++next;
    }
    if (opens && !lexer_.token().is('}')) continue;
    while (!ends.empty() && lexer_.take('}')) {
      if (ends.size() > 1) next = ends.back();
      ends.pop_back();
    }
    if (!ends.empty() && !state_.expect(',')) return false;
  } while (!ends.empty());

  if (variable.bytes == 0) {
    const std::uint64_t row = dimensions.size() > 1 ? extents[1] : 1;
    variable.bytes = (next + row - 1) / row * row * head.type.bytes;
  }
  return true;
}

bool ModuleParser::parse_value(Variable& variable, Type type, std::uint64_t offset_bytes) {
  const Token token = lexer_.token();
  const std::uint64_t end = offset_bytes + type.bytes;
  if (end > kMaxPtxBytes - state_.num_initial_bytes + variable.initial.size()) {
    return state_.fail(token.line, "more than " + std::to_string(kMaxPtxBytes) + " bytes of values");
  }
  state_.num_initial_bytes += end - variable.initial.size();
  variable.initial.resize(end);
  if (token.kind == TokenKind::kWord) return parse_address(variable, type, offset_bytes);

  const bool is_negative = lexer_.take('-');
  const Token digits = lexer_.token();
  const auto number =
      digits.kind == TokenKind::kNumber ? number_value(digits.text, is_negative) : std::nullopt;
  if (!number) return state_.fail_expected("a value");
  lexer_.advance();
  auto bits = static_cast<std::uint64_t>(number->bits);
  const std::uint64_t excess = type.bytes == 8 ? 0 : ~std::uint64_t{0} << (8 * type.bytes);
  bool fits = false;
  if (number->kind == OperandKind::kInteger) {
    // Signed or unsigned, whatever the type is.
    const bool is_small =
        is_negative && bits != 0 ? (bits | excess | excess >> 1) == bits : (bits & excess) == 0;
    fits = type.kind != TypeKind::kFloat && is_small;
  } else if (type.kind == TypeKind::kFloat && type.bytes >= 4) {
    const double value = number->kind == OperandKind::kFloat32
                             ? std::bit_cast<float>(static_cast<std::uint32_t>(bits))
                             : std::bit_cast<double>(bits);
    const bool is_same = (number->kind == OperandKind::kFloat32) == (type.bytes == 4);
    if (!is_same) {
      bits = type.bytes == 8 ? std::bit_cast<std::uint64_t>(value)
                             : std::bit_cast<std::uint32_t>(static_cast<float>(value));
    }
    fits = true;
  }
  if (!fits) return state_.fail(digits.line, "not a value of that type: " + quoted(lexer_.text_since(token)));
  for (std::uint64_t i = 0; i < type.bytes; ++i) {
    variable.initial[offset_bytes + i] = static_cast<std::uint8_t>(bits >> (8 * i));
  }
  return true;
}

/// x, x+4, generic(x), generic(x)+4
bool ModuleParser::parse_address(Variable& variable, Type type, std::uint64_t offset_bytes) {
  Variable::Address address;
  address.offset_bytes = offset_bytes;
  Token name = lexer_.token();
  lexer_.advance();
  if (name.text == "generic" && lexer_.take('(')) {
    address.is_generic = true;
    name = lexer_.token();
    std::string_view word;
    if (!state_.expect_word("a variable", word) || !state_.expect(')')) return false;
  }
  const auto found = state_.variables.find(name.text);
  if (found == state_.variables.end()) {
    return state_.fail(name.line, state_.functions.contains(name.text)
                                      ? "the address of a function is not supported: " + quoted(name.text)
                                      : "no variable is called " + quoted(name.text));
  }
  address.variable = found->second;
  if (type.bytes != 8 || type.kind == TypeKind::kFloat) {
    return state_.fail(name.line, "an address needs 64 bits: " + quoted(name.text));
  }
  if (lexer_.take('+') || lexer_.token().is('-')) {
    if (!state_.expect_integer("an offset", address.addend)) return false;
  }
  variable.addresses.push_back(address);
  return true;
}

bool ModuleParser::parse_function(bool is_entry) {
  Function function;
  function.is_entry = is_entry;
  function.line = lexer_.token().line;
  if (!is_entry) {
    if (lexer_.token().is_dot("noreturn")) lexer_.advance();
    if (lexer_.token().is('(') && !parse_parameters(function, function.num_results)) return false;
    if (lexer_.token().is_dot("noreturn")) lexer_.advance();
  }
  if (!state_.expect_new_name(function.name)) return false;
  if (lexer_.token().is('(') && !parse_parameters(function, function.num_parameters)) return false;
  if (!parse_function_directives(function)) return false;
  function.has_body = lexer_.token().is('{');
  if (!function.has_body && !lexer_.token().is(';')) return state_.fail_expected("\"{\" or \";\"");

  std::uint32_t index = 0;
  if (!begin_function(function, index)) return false;
  if (function.has_body) {
    if (!parse_function_body(state_, function)) return false;
  } else {
    lexer_.advance();
    function.is_label.assign(1, false);
  }
  if (function.has_body || !module_.functions[index].has_body) module_.functions[index] = std::move(function);
  return true;
}

/// Calls in a body may name the function itself.
bool ModuleParser::begin_function(const Function& function, std::uint32_t& index) {
  if (state_.variables.contains(function.name)) {
    return state_.fail(function.line, "declared twice: " + quoted(function.name));
  }
  const auto [place, is_new] =
      state_.functions.try_emplace(function.name, static_cast<std::uint32_t>(module_.functions.size()));
  index = place->second;
  if (is_new) {
    module_.functions.emplace_back();
    return true;
  }
  const Function& other = module_.functions[index];
  if (other.has_body && function.has_body) {
    return state_.fail(function.line, "declared twice: " + quoted(function.name));
  }
  if (other.is_entry != function.is_entry || other.num_results != function.num_results ||
      other.num_parameters != function.num_parameters) {
    return state_.fail(function.line, "declared in two ways: " + quoted(function.name));
  }
  return true;
}

bool ModuleParser::parse_parameters(Function& function, std::uint32_t& num) {
  lexer_.advance();
  if (lexer_.take(')')) return true;
  std::vector<std::uint64_t> dimensions;
  do {
    if (!lexer_.token().is_dot("param")) return state_.fail_expected("\".param\"");
    lexer_.advance();
    DeclarationHead head;
    head.space = Space::kParam;
    Variable variable;
    if (!state_.parse_head(head) || !state_.parse_declarator(head, variable, dimensions)) return false;
    if (variable.bytes == 0)
      return state_.fail(variable.line, "a parameter without a size: " + quoted(variable.name));
    function.variables.push_back(std::move(variable));
    ++num;
  } while (lexer_.take(','));
  return state_.expect(')');
}

bool ModuleParser::parse_function_directives(Function& function) {
  constexpr std::array<std::string_view, 4> kPlain = {"noreturn", "explicitcluster", "blocksareclusters",
                                                      "abi_preserve_control"};
  constexpr std::array<std::string_view, 6> kWithNumbers = {
      "minnctapersm", "maxnctapersm", "maxnreg", "maxclusterrank", "reqnctapercluster", "abi_preserve"};
  while (lexer_.token().kind == TokenKind::kDotWord) {
    const Token token = lexer_.token();
    const std::string_view name = token.text.substr(1);
    bool is_debug = false;
    if (!state_.skip_debug_directive(is_debug)) return false;
    if (is_debug) continue;
    lexer_.advance();
    std::array<std::uint32_t, 3> threads{};
    if (name == "maxntid" || name == "reqntid") {
      if (!parse_threads(threads)) return false;
      std::uint64_t product = threads[0];
      for (const std::uint64_t dimension : {threads[1], threads[2]}) {
        if (product > kMaxThreads / dimension) return state_.fail(token.line, "too many threads in a block");
        product *= dimension;
      }
      if (name == "maxntid") {
        function.max_threads = static_cast<std::uint32_t>(product);
      } else {
        std::ranges::copy(threads, function.required_threads);
      }
    } else if (name == "pragma") {
      if (lexer_.token().kind != TokenKind::kString) return state_.fail_expected("a string");
      lexer_.advance();
      if (!state_.expect(';')) return false;
    } else if (std::ranges::find(kWithNumbers, name) != kWithNumbers.end()) {
      std::int64_t number = 0;
      do {
        if (!state_.expect_integer("a number", number)) return false;
      } while (lexer_.take(','));
    } else if (std::ranges::find(kPlain, name) == kPlain.end()) {
      return state_.fail(token.line, "of a function: " + quoted(token.text) + " is not supported");
    }
  }
  return true;
}

bool ModuleParser::parse_threads(std::array<std::uint32_t, 3>& threads) {
  threads = {1, 1, 1};
  std::size_t i = 0;
  do {
    std::uint64_t number = 0;
    if (i == threads.size()) return state_.fail_expected("at most three sizes");
    if (!state_.expect_count("a number of threads", kMaxThreads, number)) return false;
    threads[i++] = static_cast<std::uint32_t>(number);
  } while (lexer_.take(','));
  return true;
}

}  // namespace

Result<Module> parse_ptx(std::string text) {
  if (text.size() > kMaxPtxBytes) {
    return Unexpected(ErrorCode::kCorruptFile, "line 1: the text has " + std::to_string(text.size()) +
                                                   " bytes; at most " + std::to_string(kMaxPtxBytes) +
                                                   " are read");
  }
  Module module;
  module.text = std::make_shared<const std::string>(std::move(text));
  ParserState state(module);
  if (!ModuleParser(state).parse()) return Unexpected(ErrorCode::kCorruptFile, std::move(state.error));
  return module;
}

}  // namespace weightpress::ptxvm
