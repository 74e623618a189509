// Function bodies (PTX ISA 9.0, sections 4.3, 5.2, 5.4, 6.4, 6.5 and the form of chapter 9's instructions).
#include <algorithm>
#include <array>
#include <optional>

#include "ptxvm/ptx_names.h"
#include "ptxvm/ptx_parser_state.h"

namespace weightpress::ptxvm {
namespace {

constexpr std::size_t kMaxScopes = 64;

constexpr std::array<std::string_view, 49> kSpecialRegisters = {"%tid",
                                                                "%ntid",
                                                                "%laneid",
                                                                "%warpid",
                                                                "%nwarpid",
                                                                "%ctaid",
                                                                "%nctaid",
                                                                "%smid",
                                                                "%nsmid",
                                                                "%gridid",
                                                                "%is_explicit_cluster",
                                                                "%clusterid",
                                                                "%nclusterid",
                                                                "%cluster_ctaid",
                                                                "%cluster_nctaid",
                                                                "%cluster_ctarank",
                                                                "%cluster_nctarank",
                                                                "%lanemask_eq",
                                                                "%lanemask_le",
                                                                "%lanemask_lt",
                                                                "%lanemask_ge",
                                                                "%lanemask_gt",
                                                                "%clock",
                                                                "%clock_hi",
                                                                "%clock64",
                                                                "%pm0",
                                                                "%pm1",
                                                                "%pm2",
                                                                "%pm3",
                                                                "%pm4",
                                                                "%pm5",
                                                                "%pm6",
                                                                "%pm7",
                                                                "%pm0_64",
                                                                "%pm1_64",
                                                                "%pm2_64",
                                                                "%pm3_64",
                                                                "%pm4_64",
                                                                "%pm5_64",
                                                                "%pm6_64",
                                                                "%pm7_64",
                                                                "%globaltimer",
                                                                "%globaltimer_lo",
                                                                "%globaltimer_hi",
                                                                "%total_smem_size",
                                                                "%aggr_smem_size",
                                                                "%dynamic_smem_size",
                                                                "%current_graph_exec",
                                                                "WARP_SZ"};

bool is_special_register(std::string_view name) {
  return std::ranges::find(kSpecialRegisters, name) != kSpecialRegisters.end() ||
         name.starts_with("%envreg") || name.starts_with("%reserved_smem_");
}

class BodyParser {
 public:
  BodyParser(ParserState& state, Function& function)
      : state_(state), lexer_(state.lexer), function_(function), names_(function) {}

  bool parse();

 private:
  bool parse_statement();
  bool parse_directive();
  bool parse_registers();
  bool parse_variables(Space space, bool is_extern);
  bool parse_pragma();
  bool parse_instruction();
  bool parse_guard(Instruction& instruction);
  bool parse_call(Instruction& instruction);
  bool parse_callee(Operand& operand);
  bool parse_operand(Instruction& instruction, Operand& operand);
  bool parse_simple(Operand& operand);
  bool parse_name(Operand& operand);
  bool parse_number(Operand& operand, bool is_negative);
  bool parse_offset(std::int64_t& offset);
  bool parse_address(Operand& operand);
  bool parse_parts(Operand& operand, char end);
  bool add_label(std::string_view name, std::uint32_t line);
  bool finish_labels();

  ParserState& state_;
  Lexer& lexer_;
  Function& function_;
  ScopedNames names_;
  LabelNames labels_;
  std::optional<std::uint64_t> used_bytes_mask_;  // for the next instruction
  bool is_branch_ = false;                        // the present instruction is
};

bool BodyParser::parse() {
  for (std::uint32_t i = 0; i < function_.variables.size(); ++i) {
    const Variable& variable = function_.variables[i];
    if (!names_.add_variable(variable.name, i)) {
      return state_.fail(variable.line, "declared twice: " + quoted(variable.name));
    }
  }
  names_.open();
  labels_.open();
  while (names_.depth() > 0) {
    if (!parse_statement()) return false;
  }
  return finish_labels();
}

bool BodyParser::parse_statement() {
  const Token token = lexer_.token();
  if (token.is('{')) {
    if (names_.depth() == kMaxScopes) {
      return state_.fail(token.line, "more than " + std::to_string(kMaxScopes) + " open braces");
    }
    names_.open();
    labels_.open();
    lexer_.advance();
    return true;
  }
  if (token.is('}')) {
    names_.close();
    labels_.close();
    lexer_.advance();
    return true;
  }
  if (lexer_.take(';')) return true;
  if (token.kind == TokenKind::kDotWord) return parse_directive();
  if (token.kind != TokenKind::kWord && !token.is('@')) return state_.fail_expected("an instruction");
  return parse_instruction();
}

bool BodyParser::parse_directive() {
  bool is_known = false;
  if (!state_.skip_debug_directive(is_known)) return false;
  if (is_known) return true;
  const Token token = lexer_.token();
  lexer_.advance();
  if (token.is_dot("reg")) return parse_registers();
  if (token.is_dot("pragma")) return parse_pragma();
  if (token.is_dot("local")) return parse_variables(Space::kLocal, false);
  if (token.is_dot("param")) return parse_variables(Space::kParam, false);
  if (token.is_dot("shared")) return parse_variables(Space::kShared, false);
  if (token.is_dot("extern") && lexer_.token().is_dot("shared")) {
    lexer_.advance();
    return parse_variables(Space::kShared, true);
  }
  return state_.fail(token.line, "in a function: " + quoted(token.text) + " is not supported");
}

/// .reg .b32 %r<10>, a;
bool BodyParser::parse_registers() {
  const Token token = lexer_.token();
  Type type;
  if (token.kind == TokenKind::kDotWord) type = parse_type(token.text.substr(1));
  if (type.bytes == 0) return state_.fail_expected("the type of a register");
  lexer_.advance();
  do {
    const std::uint32_t line = lexer_.token().line;
    std::string_view name;
    if (!state_.expect_new_name(name)) return false;
    std::uint64_t num = 1;
    const bool is_range = lexer_.take('<');
    if (is_range) {
      if (!state_.expect_count("a number of registers", kMaxPtxItems, num) || !state_.expect('>'))
        return false;
    }
    if (!state_.count(state_.num_registers, num, "registers")) return false;
    const bool is_new = is_range ? names_.add_range(name, type, static_cast<std::uint32_t>(num))
                                 : names_.add_register(name, type);
    if (!is_new) return state_.fail(line, "declared twice: " + quoted(name));
  } while (lexer_.take(','));
  return state_.expect(';');
}

bool BodyParser::parse_variables(Space space, bool is_extern) {
  DeclarationHead head;
  head.space = space;
  head.is_extern = is_extern;
  if (!state_.parse_head(head)) return false;
  std::vector<std::uint64_t> dimensions;
  do {
    Variable variable;
    if (!state_.parse_declarator(head, variable, dimensions)) return false;
    if (variable.bytes == 0 && !is_extern) {
      return state_.fail(variable.line, "an array without a size: " + quoted(variable.name));
    }
    if (!names_.add_variable(variable.name, static_cast<std::uint32_t>(function_.variables.size()))) {
      return state_.fail(variable.line, "declared twice: " + quoted(variable.name));
    }
    function_.variables.push_back(std::move(variable));
  } while (lexer_.take(','));
  return state_.expect(';');
}

/// .pragma "used_bytes_mask 0xf0"; others are hints to a compiler.
bool BodyParser::parse_pragma() {
  constexpr std::string_view kUsedBytes = "used_bytes_mask";
  const Token token = lexer_.token();
  if (token.kind != TokenKind::kString) return state_.fail_expected("a string");
  std::string_view text = token.text.substr(1, token.text.size() - 2);
  if (text.starts_with(kUsedBytes)) {
    text.remove_prefix(kUsedBytes.size());
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    const auto number = number_value(text);
    if (!number || number->kind != OperandKind::kInteger) return state_.fail_expected("a mask");
    used_bytes_mask_ = static_cast<std::uint64_t>(number->bits);
  }
  lexer_.advance();
  return state_.expect(';');
}

/// A label, or a guard and an instruction.
bool BodyParser::parse_instruction() {
  const Token first = lexer_.token();
  Instruction instruction;
  instruction.line = first.line;
  if (lexer_.take('@') && !parse_guard(instruction)) return false;
  if (!state_.expect_word("an instruction", instruction.opcode)) return false;
  if (!first.is('@') && lexer_.take(':')) {
    if (lexer_.token().kind == TokenKind::kDotWord &&
        (lexer_.token().is_dot("branchtargets") || lexer_.token().is_dot("calltargets") ||
         lexer_.token().is_dot("callprototype"))) {
      return state_.fail(lexer_.token().line, quoted(lexer_.token().text) + " is not supported");
    }
    return add_label(first.text, first.line);
  }
  if (!state_.count(state_.num_instructions, 1, "instructions")) return false;
  while (lexer_.token().kind == TokenKind::kDotWord) {
    instruction.modifiers.push_back(lexer_.token().text.substr(1));
    lexer_.advance();
  }
  is_branch_ = instruction.opcode == "bra" || instruction.opcode == "brx";
  if (instruction.opcode == "call") {
    if (!parse_call(instruction)) return false;
  } else if (!lexer_.token().is(';')) {
    do {
      if (!parse_operand(instruction, instruction.operands.emplace_back())) return false;
    } while (lexer_.take(','));
  }
  if (!lexer_.token().is(';')) return state_.fail_expected("\";\"");
  instruction.text = lexer_.text_since(first);
  lexer_.advance();
  if (used_bytes_mask_) instruction.used_bytes_mask = *used_bytes_mask_;
  used_bytes_mask_.reset();
  function_.instructions.push_back(std::move(instruction));
  return true;
}

bool BodyParser::parse_guard(Instruction& instruction) {
  instruction.guard_negated = lexer_.take('!');
  const Token token = lexer_.token();
  std::string_view name;
  if (!state_.expect_word("a predicate", name)) return false;
  const auto found = names_.find(name);
  if (!found || found->is_variable || function_.registers[found->index].type.kind != TypeKind::kPredicate) {
    return state_.fail(token.line, "no predicate is called " + quoted(name));
  }
  instruction.guard = static_cast<std::int32_t>(found->index);
  return true;
}

/// call (result), name, (arguments); each list may be missing
bool BodyParser::parse_call(Instruction& instruction) {
  if (lexer_.take('(')) {
    Operand& results = instruction.operands.emplace_back();
    results.kind = OperandKind::kList;
    if (!parse_parts(results, ')') || !state_.expect(',')) return false;
  }
  if (!parse_callee(instruction.operands.emplace_back())) return false;
  if (!lexer_.take(',')) return true;
  if (!state_.expect('(')) return false;
  Operand& arguments = instruction.operands.emplace_back();
  arguments.kind = OperandKind::kList;
  return parse_parts(arguments, ')');
}

bool BodyParser::parse_callee(Operand& operand) {
  const Token token = lexer_.token();
  if (!state_.count(state_.num_operands, 1, "operands")) return false;
  if (!state_.expect_word("a function", operand.name)) return false;
  if (names_.find(operand.name)) {
    return state_.fail(token.line, "a call by address is not supported: " + quoted(token.text));
  }
  operand.kind = OperandKind::kFunction;
  if (!state_.functions.contains(operand.name)) state_.callees.push_back({operand.name, token.line});
  return true;
}

bool BodyParser::parse_operand(Instruction& instruction, Operand& operand) {
  if (lexer_.token().is('[')) return parse_address(operand);
  if (lexer_.take('{')) {
    operand.kind = OperandKind::kVector;
    return parse_parts(operand, '}');
  }
  if (is_branch_ && lexer_.token().kind == TokenKind::kWord && !names_.find(lexer_.token().text)) {
    if (!state_.count(state_.num_operands, 1, "operands")) return false;
    operand.kind = OperandKind::kLabel;
    operand.name = lexer_.token().text;
    labels_.refer(operand.name, lexer_.token().line,
                  static_cast<std::uint32_t>(function_.instructions.size()),
                  static_cast<std::uint32_t>(instruction.operands.size() - 1));
    lexer_.advance();
    return true;
  }
  if (!parse_simple(operand)) return false;
  if (!lexer_.take('|')) return true;
  Operand first = std::move(operand);
  operand = {};
  operand.kind = OperandKind::kPair;
  operand.parts.push_back(std::move(first));
  const std::uint32_t line = lexer_.token().line;
  if (!parse_simple(operand.parts.emplace_back())) return false;
  for (const Operand& part : operand.parts) {
    if ((part.kind != OperandKind::kRegister || part.negated) && part.kind != OperandKind::kNothing) {
      return state_.fail(line, "a pair is of two registers");
    }
  }
  return true;
}

/// One value: neither an address nor a list.
bool BodyParser::parse_simple(Operand& operand) {
  if (!state_.count(state_.num_operands, 1, "operands")) return false;
  const Token token = lexer_.token();
  if (token.is('-')) {
    lexer_.advance();
    return parse_number(operand, true);
  }
  if (token.kind == TokenKind::kNumber) return parse_number(operand, false);
  if (token.is('!')) {
    lexer_.advance();
    if (lexer_.token().kind != TokenKind::kWord) return state_.fail_expected("a predicate");
    if (!parse_name(operand)) return false;
    if (operand.kind != OperandKind::kRegister) {
      return state_.fail(token.line, "not a register: " + quoted(lexer_.text_since(token)));
    }
    operand.negated = true;
    return true;
  }
  if (token.kind != TokenKind::kWord) return state_.fail_expected("an operand");
  if (!parse_name(operand)) return false;
  if (operand.kind != OperandKind::kLocalVariable && operand.kind != OperandKind::kModuleVariable)
    return true;
  return parse_offset(operand.integer);
}

bool BodyParser::parse_number(Operand& operand, bool is_negative) {
  const Token token = lexer_.token();
  const auto number = token.kind == TokenKind::kNumber ? number_value(token.text, is_negative) : std::nullopt;
  if (!number) return state_.fail_expected("a number");
  operand.kind = number->kind;
  operand.integer = number->bits;
  lexer_.advance();
  return true;
}

/// "+4", "+-4", "-4", or nothing.
bool BodyParser::parse_offset(std::int64_t& offset) {
  if (!lexer_.take('+') && !lexer_.token().is('-')) return true;
  return state_.expect_integer("an offset", offset);
}

bool BodyParser::parse_name(Operand& operand) {
  const Token token = lexer_.token();
  lexer_.advance();
  if (token.text == "_") {
    operand.kind = OperandKind::kNothing;
    return true;
  }
  if (const auto found = names_.find(token.text)) {
    operand.kind = found->is_variable ? OperandKind::kLocalVariable : OperandKind::kRegister;
    operand.index = found->index;
    if (lexer_.token().kind != TokenKind::kDotWord) return true;
    return state_.fail(token.line,
                       quoted(lexer_.token().text) + " of a register or variable is not supported");
  }
  if (const auto found = state_.variables.find(token.text); found != state_.variables.end()) {
    operand.kind = OperandKind::kModuleVariable;
    operand.index = found->second;
    return true;
  }
  if (is_special_register(token.text)) {
    operand.kind = OperandKind::kSpecial;
    if (lexer_.token().kind == TokenKind::kDotWord) lexer_.advance();
    operand.name = lexer_.text_since(token);
    return true;
  }
  operand.kind = OperandKind::kFunction;
  operand.name = token.text;
  return state_.functions.contains(token.text) ||
         state_.fail(token.line, "nothing is called " + quoted(token.text));
}

/// [register + offset], and so on.
bool BodyParser::parse_address(Operand& operand) {
  if (!state_.count(state_.num_operands, 2, "operands")) return false;
  lexer_.advance();
  operand.kind = OperandKind::kAddress;
  Operand& base = operand.parts.emplace_back();
  const Token token = lexer_.token();
  if (token.kind == TokenKind::kNumber) {
    if (!parse_number(base, false)) return false;
  } else {
    if (token.kind != TokenKind::kWord) return state_.fail_expected("an address");
    if (!parse_name(base)) return false;
  }
  if (base.kind != OperandKind::kRegister && base.kind != OperandKind::kLocalVariable &&
      base.kind != OperandKind::kModuleVariable && base.kind != OperandKind::kInteger) {
    return state_.fail(token.line, "not an address: " + quoted(token.text));
  }
  return parse_offset(operand.integer) && state_.expect(']');
}

/// From after the bracket that opens to after the one that closes.
bool BodyParser::parse_parts(Operand& operand, char end) {
  if (!state_.count(state_.num_operands, 1, "operands")) return false;
  if (operand.kind == OperandKind::kList && lexer_.take(end)) return true;
  do {
    if (!parse_simple(operand.parts.emplace_back())) return false;
  } while (lexer_.take(','));
  return state_.expect(end);
}

bool BodyParser::add_label(std::string_view name, std::uint32_t line) {
  return labels_.add(name, static_cast<std::uint32_t>(function_.instructions.size())) ||
         state_.fail(line, "a label that is there already: " + quoted(name));
}

bool BodyParser::finish_labels() {
  function_.is_label.assign(function_.instructions.size() + 1, false);
  labels_.mark(function_.is_label);
  for (const LabelNames::Reference& reference : labels_.references()) {
    const auto place = labels_.find(reference);
    if (!place) return state_.fail(reference.line, "no label is called " + quoted(reference.name));
    function_.instructions[reference.instruction].operands[reference.operand].index = *place;
  }
  return true;
}

}  // namespace

bool parse_function_body(ParserState& state, Function& function) {
  state.lexer.advance();
  return BodyParser(state, function).parse();
}

}  // namespace weightpress::ptxvm
