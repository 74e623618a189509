// The names of a function body: each belongs to a pair of braces, and inner ones hide outer ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptxvm/ptx_module.h"

namespace weightpress::ptxvm {

/// Names to numbers that are forgotten with the braces that they were declared in. Every step takes constant
/// time on average.
class ScopedMap {
 public:
  struct Entry {
    std::uint32_t value = 0;
    std::uint32_t depth = 0;
  };

  /// Returns false if the name has been declared between the same braces.
  bool add(std::string_view name, std::uint32_t value);
  const Entry* find(std::string_view name) const;
  void open() { marks_.push_back(hidden_.size()); }
  void close();
  std::uint32_t depth() const { return static_cast<std::uint32_t>(marks_.size()); }

 private:
  struct Hidden {
    std::string_view name;
    std::optional<Entry> entry;  // that it had before
  };
  std::unordered_map<std::string_view, Entry> entries_;
  std::vector<Hidden> hidden_;
  std::vector<std::size_t> marks_;  // of each open brace: the size of hidden_
};

/// Registers and variables. A register of a range ("%r<10>") comes to be when it is first found, so that
/// unused ones cost nothing and every name stands in the text.
class ScopedNames {
 public:
  struct Name {
    bool is_variable = false;
    std::uint32_t index = 0;  ///< into Function::registers or Function::variables
  };

  explicit ScopedNames(Function& function) : function_(function) {}

  /// These return false if the name has been declared between the same braces.
  bool add_variable(std::string_view name, std::uint32_t index);
  bool add_register(std::string_view name, Type type);
  bool add_range(std::string_view prefix, Type type, std::uint32_t num);

  std::optional<Name> find(std::string_view name);
  void open();
  void close();
  std::uint32_t depth() const { return names_.depth(); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Range {
    Type type;
    std::uint32_t num = 0;
    std::uint32_t depth = 0;
    std::uint32_t outer = kNone;         // range with the same prefix in outer braces
    std::vector<std::uint32_t> indices;  // by number; kNone: not found yet
  };

  /// The range of the innermost braces that holds the name, or kNone; and the name's number in it.
  std::uint32_t find_range(std::string_view name, std::uint32_t& number) const;
  std::uint32_t add_to_function(std::string_view name, Type type);

  Function& function_;
  ScopedMap names_;   // 2 * index, + 1 for a variable
  ScopedMap ranges_;  // by prefix
  std::vector<Range> all_ranges_;
  bool has_digit_prefixes_ = false;  // some prefix ends with a digit
};

/// Labels, which may be used before they are declared: in the braces that declare them and those inside.
class LabelNames {
 public:
  struct Reference {
    std::string_view name;
    std::uint32_t line = 0, instruction = 0, operand = 0, scope = 0;
  };

  bool add(std::string_view name, std::uint32_t instruction);
  void refer(std::string_view name, std::uint32_t line, std::uint32_t instruction, std::uint32_t operand);
  void open();
  void close() { scope_ = parents_[scope_]; }

  const std::vector<Reference>& references() const { return references_; }
  std::optional<std::uint32_t> find(const Reference& reference) const;
  /// Sets the marks of all labels' instructions.
  void mark(std::vector<bool>& is_label) const;

 private:
  struct Key {
    std::uint32_t scope = 0;
    std::string_view name;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::string_view>()(key.name) + 0x9e3779b97f4a7c15u * key.scope;
    }
  };

  std::unordered_map<Key, std::uint32_t, KeyHash> places_;
  std::vector<Reference> references_;
  std::vector<std::uint32_t> parents_;  // of each pair of braces; the outermost is its own
  std::uint32_t scope_ = 0;
};

}  // namespace weightpress::ptxvm
