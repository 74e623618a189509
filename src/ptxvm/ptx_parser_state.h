// What the parsers of modules and of function bodies share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptxvm/ptx_lexer.h"
#include "ptxvm/ptx_module.h"
#include "ptxvm/ptx_parser.h"

namespace weightpress::ptxvm {

/// The part of a declaration that all its names share.
struct DeclarationHead {
  Space space = Space::kGlobal;
  Type type;
  std::uint32_t num_lanes = 1;  ///< .v2, .v4
  std::uint32_t align = 0;      ///< 0: that of the type
  bool is_extern = false;
};

/// Functions that return false have called fail(), here or in what they called.
struct ParserState {
  explicit ParserState(Module& to) : module(to), lexer(*to.text) {}

  Module& module;
  Lexer lexer;
  std::string error;

  std::unordered_map<std::string_view, std::uint32_t> variables;  ///< into module.variables
  std::unordered_map<std::string_view, std::uint32_t> functions;  ///< into module.functions
  struct Callee {
    std::string_view name;
    std::uint32_t line;
  };
  std::vector<Callee> callees;  ///< called before they were declared

  // Of the whole module; kMaxPtxItems of each.
  std::uint64_t num_registers = 0, num_variables = 0, num_instructions = 0, num_operands = 0;
  std::uint64_t num_initial_bytes = 0;

  bool fail(std::uint32_t line, std::string_view message);
  /// "expected X, not" the present token.
  bool fail_expected(std::string_view what);
  bool expect(char mark);
  bool expect_word(std::string_view what, std::string_view& word);
  bool expect_count(std::string_view what, std::uint64_t max, std::uint64_t& count);
  bool expect_integer(std::string_view what, std::int64_t& value);
  /// A name that is being declared.
  bool expect_new_name(std::string_view& name);
  bool count(std::uint64_t& counter, std::uint64_t more, std::string_view what);

  /// From after the state space to before the first name.
  bool parse_head(DeclarationHead& head);
  /// A name and its dimensions, which a vector's lanes end; the first of them is 0 for "[]".
  bool parse_declarator(const DeclarationHead& head, Variable& variable,
                        std::vector<std::uint64_t>& dimensions);
  /// Directives that say nothing about what a program does. `is_known` is false, and nothing is read, if the
  /// token is none of them.
  bool skip_debug_directive(bool& is_known);
};

/// From "{" to after the matching "}". The function has its name and parameters.
bool parse_function_body(ParserState& state, Function& function);

}  // namespace weightpress::ptxvm
