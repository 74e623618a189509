#include "ptxvm/ptx_module.h"

#include <algorithm>
#include <array>

namespace weightpress::ptxvm {
namespace {

struct NamedType {
  std::string_view name;
  Type type;
};

constexpr std::array kTypes = {
    NamedType{"pred", {TypeKind::kPredicate, 1}}, NamedType{"b8", {TypeKind::kBits, 1}},
    NamedType{"b16", {TypeKind::kBits, 2}},       NamedType{"b32", {TypeKind::kBits, 4}},
    NamedType{"b64", {TypeKind::kBits, 8}},       NamedType{"u8", {TypeKind::kUnsigned, 1}},
    NamedType{"u16", {TypeKind::kUnsigned, 2}},   NamedType{"u32", {TypeKind::kUnsigned, 4}},
    NamedType{"u64", {TypeKind::kUnsigned, 8}},   NamedType{"s8", {TypeKind::kSigned, 1}},
    NamedType{"s16", {TypeKind::kSigned, 2}},     NamedType{"s32", {TypeKind::kSigned, 4}},
    NamedType{"s64", {TypeKind::kSigned, 8}},     NamedType{"f16", {TypeKind::kFloat, 2}},
    NamedType{"f32", {TypeKind::kFloat, 4}},      NamedType{"f64", {TypeKind::kFloat, 8}}};

}  // namespace

Type parse_type(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &NamedType::name);
  return found == kTypes.end() ? Type{} : found->type;
}

bool Instruction::has(std::string_view modifier) const {
  return std::ranges::find(modifiers, modifier) != modifiers.end();
}

const Function* Module::find(std::string_view name) const {
  const Function* found = nullptr;
  for (const Function& function : functions) {
    if (function.name != name) continue;
    if (function.has_body) return &function;
    if (found == nullptr) found = &function;
  }
  return found;
}

}  // namespace weightpress::ptxvm
