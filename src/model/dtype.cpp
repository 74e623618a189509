#include "model/dtype.h"

#include <array>

namespace weightpress::model {
namespace {

struct DtypeFacts {
  std::string_view name;
  unsigned bits;
};

// Indexed by Dtype.
constexpr std::array<DtypeFacts, kNumDtypes> kFacts{
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};
static_assert(kFacts[static_cast<unsigned>(Dtype::kBf16)].name == "BF16");
static_assert(kFacts[static_cast<unsigned>(Dtype::kU64)].name == "U64");

}  // namespace

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (unsigned i = 0; i < kNumDtypes; ++i)
    if (kFacts[i].name == name) return static_cast<Dtype>(i);
  return std::nullopt;
}

std::string_view dtype_name(Dtype dtype) {
  return kFacts[static_cast<unsigned>(dtype)].name;
}

unsigned dtype_bits(Dtype dtype) {
  return kFacts[static_cast<unsigned>(dtype)].bits;
}

}  // namespace weightpress::model
