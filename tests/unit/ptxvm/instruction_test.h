// Runs single PTX instructions over columns of values, and compares with what C++ makes of the PTX ISA's
// definitions.
//
// A value is 64 bits, of which its type takes the low ones; what lies above is noise that the instruction
// must not see. Every instruction runs in several forms: registers, each source as the destination too, under
// a guard, immediates.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptxvm/launch.h"
#include "support/weights.h"

namespace weightpress::ptxvm::instructions {

using weightpress::testing::Random;

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;
using Values = std::vector<std::uint64_t>;

/// "pred", "b32", "u8", "s64", "f32" and so on.
struct ValueType {
  char kind = 'b';  ///< p, b, u, s, f
  int bits = 32;
};
ValueType value_type(std::string_view name);
/// The mathematical value of bits; of b and f their bits.
Wide number(ValueType type, std::uint64_t bits);
/// The low bits of a value, the others 0.
std::uint64_t low_bits(int bits, Wide value);
std::string hex(std::uint64_t value);

inline float as_f32(Wide bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}
inline double as_f64(Wide bits) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(bits));
}
inline Wide bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
inline Wide bits_of(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

/// 0, 1, the largest, the smallest, powers of two, NaN, subnormals: what a type has of these.
Values edges(std::string_view type);
/// All bits random; integers often small, floats often of like size.
Values random_values(std::string_view type, std::size_t count, Random& random);
/// A column for each type: all combinations of edges (of three and more: of some), then `count` random rows.
std::vector<Values> columns(const std::vector<std::string>& types, std::uint64_t seed,
                            std::size_t count = 2000);
/// All of the first two types' 16-bit values against edges and random ones of the others.
std::vector<Values> all_16_bit(const std::vector<std::string>& types, std::uint64_t seed);

/// Instructions for every element. They find %a, %b, %c, %e (the sources' values), %i (the element, .u32),
/// %t (the thread) and leave the results in %d0, %d1, ...
struct Snippet {
  std::vector<std::string> sources, results;  ///< types
  std::string body;
  std::string module_scope = "";  ///< variables and functions
  std::uint32_t block = 256;      ///< threads; the last block is cut short
  LaunchOptions options = {};
  std::uint64_t extra_bytes = 0;  ///< of a zeroed buffer at %x
};
struct SnippetOutput {
  std::vector<Values> results;
  std::vector<std::uint8_t> extra;
};
/// Fails the test, and returns nothing, if it does not run to the end.
std::optional<SnippetOutput> run(const Snippet& snippet, const std::vector<Values>& sources,
                                 std::size_t num_elements);
/// The fault that it ends with; fails the test if there is none.
std::optional<Fault> fault_of(const Snippet& snippet, const std::vector<Values>& sources,
                              std::size_t num_elements);

struct Operation {
  std::string opcode;                         ///< "add.s32"
  std::string result;                         ///< type of the destination register
  std::vector<std::string> sources;           ///< types
  std::function<Wide(const Wide*)> expected;  ///< from number()s; only the result's bits count
  /// Rows that the ISA leaves open; they must only end.
  std::function<bool(const Wide*)> is_open = nullptr;
  bool immediates = true;
  std::uint64_t largest_immediate = ~std::uint64_t{0};  ///< of all sources but the first
  std::string last_operands = "";                       ///< ", 0x1B", the same in all forms
};

/// Compares all forms over the rows. Two NaNs are equal.
void check(const Operation& operation, const std::vector<Values>& rows);
/// The same over columns(); for 8 and 16 bit sources over all_16_bit() too, registers only.
void check(const Operation& operation);

/// Of all rows; failures name it.
constexpr std::uint64_t kSeed = 20'250'601;

/// The message of a module that must not load, or "" and a failed test.
std::string load_error(const std::string& ptx);
/// A whole module with one kernel around a body.
std::string module_text(const std::string& body, const std::string& module_scope = "");

}  // namespace weightpress::ptxvm::instructions
