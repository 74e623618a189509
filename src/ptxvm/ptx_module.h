// A parsed PTX file: functions, variables and instructions, with every name resolved (PTX ISA 9.0, chapters
// 4, 5, 7).
//
// Nothing here knows what an instruction does; lowering.h does. Whatever the text was, every index in it is
// valid.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weightpress::ptxvm {

enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kLocal, kConst, kParam };

enum class TypeKind : std::uint8_t { kPredicate, kBits, kUnsigned, kSigned, kFloat };

/// .u32 and its like. A predicate has one byte.
struct Type {
  TypeKind kind = TypeKind::kBits;
  std::uint8_t bytes = 0;

  friend bool operator==(const Type&, const Type&) = default;
};

/// "u32" to a Type; bytes is 0 if there is no such type: pred, b8 to b64, u8 to u64, s8 to s64, f16, f32,
/// f64.
Type parse_type(std::string_view name);

struct Register {
  std::string_view name;
  Type type;
};

/// Bytes with a name: module or function scope.
struct Variable {
  std::string_view name;
  Space space = Space::kGlobal;
  std::uint64_t bytes = 0;  ///< 0 for an array without a size (.extern .shared)
  std::uint32_t align = 1;  ///< a power of two, at most 1024
  bool is_extern = false;
  std::vector<std::uint8_t> initial;  ///< at most `bytes`; what is missing is 0
  /// Places in `initial` that hold the address of another module variable.
  struct Address {
    std::uint64_t offset_bytes = 0;
    std::uint32_t variable = 0;  ///< into Module::variables
    std::int64_t addend = 0;
    bool is_generic = false;  ///< generic(x); else the address in the variable's own space
  };
  std::vector<Address> addresses;
  std::uint32_t line = 0;
};

enum class OperandKind : std::uint8_t {
  kRegister,        ///< index: into Function::registers; negated: "!%p1"
  kInteger,         ///< integer: the literal's 64 bits
  kFloat32,         ///< integer: the bits of 0fXXXXXXXX
  kFloat64,         ///< integer: the bits of 0dXXXXXXXXXXXXXXXX, or of a decimal literal
  kLocalVariable,   ///< index: into Function::variables; integer: what is added
  kModuleVariable,  ///< index: into Module::variables; integer: what is added
  kSpecial,         ///< name: a special register with its suffix, "%tid.x", "WARP_SZ"
  kLabel,           ///< index: into Function::instructions; may be their number (the end)
  kFunction,        ///< name: of a function, as call has it
  kVector,          ///< parts: "{a, b}"
  kPair,            ///< parts: "d|p", two results
  kAddress,         ///< parts[0]: register, variable or integer; integer: what is added
  kList,            ///< parts: "(a, b)" of a call
  kNothing          ///< "_", a result that is not wanted
};

struct Operand {
  OperandKind kind = OperandKind::kNothing;
  bool negated = false;
  std::uint32_t index = 0;
  std::int64_t integer = 0;
  std::string_view name;
  std::vector<Operand> parts;
};

struct Instruction {
  std::uint32_t line = 0;                   ///< in the file, from 1; the line that it begins in
  std::string_view text;                    ///< as it stands there, guard included, without ";"
  std::string_view opcode;                  ///< "ld"
  std::vector<std::string_view> modifiers;  ///< "global", "nc", "L1::no_allocate", "u8"
  std::int32_t guard = -1;                  ///< register of "@%p1", or -1
  bool guard_negated = false;
  std::vector<Operand> operands;
  /// Bytes of the loaded value that are used, by bit: `.pragma "used_bytes_mask N"` before it.
  std::uint64_t used_bytes_mask = ~std::uint64_t{0};

  bool has(std::string_view modifier) const;
};

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;  ///< without: a declaration (.extern, or a forward one)
  std::uint32_t line = 0;
  std::vector<Register> registers;  ///< of all its scopes
  std::vector<Variable>
      variables;  ///< of all its scopes: parameters and results first, then .param, .local, .shared
  std::uint32_t num_results = 0;     ///< variables[0, num_results)
  std::uint32_t num_parameters = 0;  ///< variables[num_results, num_results + num_parameters)
  std::vector<Instruction> instructions;
  std::vector<bool> is_label;                     ///< [instructions.size() + 1]: some label stands before it
  std::uint32_t max_threads = 0;                  ///< .maxntid, x * y * z; 0: none
  std::uint32_t required_threads[3] = {0, 0, 0};  ///< .reqntid; 0: none
};

struct Module {
  std::shared_ptr<const std::string> text;  ///< what all names point into
  std::string_view version;                 ///< "8.2"
  std::string_view target;                  ///< "sm_52"
  std::vector<Variable> variables;
  std::vector<Function> functions;

  const Function* find(std::string_view name) const;  ///< with a body, if there is one
};

}  // namespace weightpress::ptxvm
