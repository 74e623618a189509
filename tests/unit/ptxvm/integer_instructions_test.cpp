#include <algorithm>
#include <bit>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

const std::vector<std::string> kTypes = {"u16", "s16", "u32", "s32", "u64", "s64"};
const std::vector<std::string> kSigned = {"s16", "s32", "s64"};
const std::vector<std::string> kNarrow = {"u16", "s16", "u32", "s32"};
const std::vector<std::string> kWide = {"u32", "s32", "u64", "s64"};

int bits_of_type(const std::string& type) {
  return value_type(type).bits;
}
bool is_signed(const std::string& type) {
  return value_type(type).kind == 's';
}
std::string twice(const std::string& type) {
  return type[0] + std::to_string(2 * bits_of_type(type));
}

/// Exact modulo 2^128.
UnsignedWide product(const Wide* s) {
  return static_cast<UnsignedWide>(s[0]) * static_cast<UnsignedWide>(s[1]);
}
Wide low_product(const Wide* s) {
  return static_cast<Wide>(product(s));
}
Wide magnitude(Wide value) {
  return value < 0 ? -value : value;
}
bool bit(Wide value, int place) {
  return (static_cast<UnsignedWide>(value) >> place & 1) != 0;
}

TEST(IntegerInstructions, AddAndSub) {
  for (const std::string& type : kTypes) {
    check({"add." + type, type, {type, type}, [](const Wide* s) { return s[0] + s[1]; }});
    check({"sub." + type, type, {type, type}, [](const Wide* s) { return s[0] - s[1]; }});
  }
  const auto saturated = [](Wide value) {
    return std::clamp<Wide>(value, std::numeric_limits<std::int32_t>::min(),
                            std::numeric_limits<std::int32_t>::max());
  };
  check({"add.sat.s32", "s32", {"s32", "s32"}, [&](const Wide* s) { return saturated(s[0] + s[1]); }});
  check({"sub.sat.s32", "s32", {"s32", "s32"}, [&](const Wide* s) { return saturated(s[0] - s[1]); }});
}

TEST(IntegerInstructions, MulAndMad) {
  for (const std::string& type : kTypes) {
    const int bits = bits_of_type(type);
    check({"mul.lo." + type, type, {type, type}, low_product});
    check({"mul.hi." + type, type, {type, type}, [bits](const Wide* s) {
             return static_cast<Wide>(product(s) >> bits);
           }});
    check({"mad.lo." + type, type, {type, type, type}, [](const Wide* s) {
             return static_cast<Wide>(product(s) + static_cast<UnsignedWide>(s[2]));
           }});
    check({"mad.hi." + type, type, {type, type, type}, [bits](const Wide* s) {
             return static_cast<Wide>((product(s) >> bits) + static_cast<UnsignedWide>(s[2]));
           }});
  }
  for (const std::string& type : kNarrow) {
    check({"mul.wide." + type, twice(type), {type, type}, low_product});
    check({"mad.wide." + type, twice(type), {type, type, twice(type)}, [](const Wide* s) {
             return s[0] * s[1] + s[2];
           }});
  }
}

TEST(IntegerInstructions, Mul24AndMad24) {
  for (const std::string type : {"u32", "s32"}) {
    const ValueType half{type[0], 24};
    const auto exact = [half](const Wide* s) {
      return number(half, static_cast<std::uint64_t>(s[0])) * number(half, static_cast<std::uint64_t>(s[1]));
    };
    check({"mul24.lo." + type, type, {type, type}, exact});
    check({"mad24.lo." + type, type, {type, type, type}, [exact](const Wide* s) { return exact(s) + s[2]; }});
  }
}

TEST(IntegerInstructions, DivAndRem) {
  for (const std::string& type : kTypes) {
    // Division by zero and of the smallest by -1: any result, but it must end.
    const auto is_open = [type](const Wide* s) {
      return s[1] == 0 || (s[1] == -1 && s[0] == -(static_cast<Wide>(1) << (bits_of_type(type) - 1)));
    };
    check({"div." + type, type, {type, type}, [](const Wide* s) { return s[0] / s[1]; }, is_open});
    check({"rem." + type, type, {type, type}, [](const Wide* s) { return s[0] % s[1]; }, is_open});
  }
}

TEST(IntegerInstructions, AbsNegMinMaxSad) {
  for (const std::string& type : kSigned) {
    check({"abs." + type, type, {type}, [](const Wide* s) { return magnitude(s[0]); }});
    check({"neg." + type, type, {type}, [](const Wide* s) { return -s[0]; }});
  }
  for (const std::string& type : kTypes) {
    check({"min." + type, type, {type, type}, [](const Wide* s) { return std::min(s[0], s[1]); }});
    check({"max." + type, type, {type, type}, [](const Wide* s) { return std::max(s[0], s[1]); }});
    check({"sad." + type, type, {type, type, type}, [](const Wide* s) {
             return s[2] + magnitude(s[0] - s[1]);
           }});
  }
}

TEST(IntegerInstructions, CountsAndReversal) {
  for (const int bits : {32, 64}) {
    const std::string type = "b" + std::to_string(bits);
    check({"popc." + type, "u32", {type}, [](const Wide* s) {
             return std::popcount(static_cast<std::uint64_t>(s[0]));
           }});
    check({"clz." + type, "u32", {type}, [bits](const Wide* s) {
             return std::countl_zero(static_cast<std::uint64_t>(s[0])) - (64 - bits);
           }});
    check({"brev." + type, type, {type}, [bits](const Wide* s) {
             Wide reversed = 0;
             for (int i = 0; i < bits; ++i) reversed = reversed * 2 + bit(s[0], i);
             return reversed;
           }});
  }
}

/// The place of the highest bit that is not a copy of the sign; -1: none.
int top_bit(Wide value) {
  if (value < 0) value = ~value;
  int place = -1;
  for (; value != 0; value >>= 1) ++place;
  return place;
}

TEST(IntegerInstructions, Bfind) {
  for (const std::string& type : kWide) {
    const int bits = bits_of_type(type);
    check({"bfind." + type, "u32", {type}, [](const Wide* s) { return top_bit(s[0]); }});
    check({"bfind.shiftamt." + type, "u32", {type}, [bits](const Wide* s) {
             return top_bit(s[0]) < 0 ? -1 : bits - 1 - top_bit(s[0]);
           }});
  }
}

TEST(IntegerInstructions, BitFields) {
  for (const std::string& type : kWide) {
    const int top = bits_of_type(type) - 1;
    check({"bfe." + type,
           type,
           {type, "u32", "u32"},
           [=](const Wide* s) {
             const int place = static_cast<int>(s[1] & 255), length = static_cast<int>(s[2] & 255);
             const bool fill = is_signed(type) && length > 0 && bit(s[0], std::min(place + length - 1, top));
             UnsignedWide field = 0;
             for (int i = 0; i <= top; ++i) {
               const bool taken = i < length && place + i <= top ? bit(s[0], place + i) : fill;
               field |= static_cast<UnsignedWide>(taken) << i;
             }
             return static_cast<Wide>(field);
           },
           nullptr,
           true,
           255});
  }
  for (const std::string type : {"b32", "b64"}) {
    const int top = bits_of_type(type) - 1;
    check({"bfi." + type,
           type,
           {type, type, "u32", "u32"},
           [=](const Wide* s) {
             const int place = static_cast<int>(s[2] & 255), length = static_cast<int>(s[3] & 255);
             auto result = static_cast<UnsignedWide>(s[1]);
             for (int i = 0; i < length && place + i <= top; ++i) {
               result &= ~(static_cast<UnsignedWide>(1) << (place + i));
               result |= static_cast<UnsignedWide>(bit(s[0], i)) << (place + i);
             }
             return static_cast<Wide>(result);
           },
           nullptr,
           true,
           255});
  }
}

TEST(IntegerInstructions, BitMasksAndExtension) {
  check({"bmsk.clamp.b32", "b32", {"u32", "u32"}, [](const Wide* s) {
           Wide mask = 0;
           for (int i = 0; i < 32; ++i)
             if (i >= s[0] && i < s[0] + s[1]) mask |= Wide{1} << i;
           return mask;
         }});
  check({"bmsk.wrap.b32", "b32", {"u32", "u32"}, [](const Wide* s) {
           Wide mask = 0;
           for (int i = 0; i < 32; ++i)
             if (i >= (s[0] & 31) && i < (s[0] & 31) + (s[1] & 31)) mask |= Wide{1} << i;
           return mask;
         }});
  for (const std::string type : {"u32", "s32"}) {
    for (const bool wraps : {false, true}) {
      check({std::string(wraps ? "szext.wrap." : "szext.clamp.") + type,
             type,
             {type, "u32"},
             [=](const Wide* s) -> Wide {
               const int bits = static_cast<int>(wraps ? s[1] & 31 : std::min<Wide>(s[1], 32));
               if (bits == 0) return 0;
               return number({type[0], bits}, static_cast<std::uint64_t>(s[0]));
             }});
    }
  }
}

TEST(IntegerInstructions, DotProducts) {
  const auto part = [](Wide value, char kind, int bits, int index) {
    return number({kind, bits}, static_cast<std::uint64_t>(value) >> (bits * index));
  };
  for (const std::string a : {"u32", "s32"}) {
    for (const std::string b : {"u32", "s32"}) {
      const std::string c = a == b && a == "u32" ? "u32" : "s32";
      check({"dp4a." + a + "." + b, c, {a, b, c}, [=](const Wide* s) {
               Wide sum = s[2];
               for (int i = 0; i < 4; ++i) sum += part(s[0], a[0], 8, i) * part(s[1], b[0], 8, i);
               return sum;
             }});
      for (const int first : {0, 2}) {
        check({std::string(first == 0 ? "dp2a.lo." : "dp2a.hi.") + a + "." + b,
               c,
               {a, b, c},
               [=](const Wide* s) {
                 Wide sum = s[2];
                 for (int i = 0; i < 2; ++i) sum += part(s[0], a[0], 16, i) * part(s[1], b[0], 8, first + i);
                 return sum;
               }});
      }
    }
  }
}

/// Runs lines that leave %d0, %d1 and %d2, and compares these with a function of the sources.
void check_chain(const std::string& type, const std::string& body, std::size_t num_sources,
                 const std::function<void(const UnsignedWide*, UnsignedWide*)>& expected) {
  const int bits = bits_of_type(type);
  const std::vector<Values> rows = columns(std::vector<std::string>(num_sources, type), kSeed);
  const auto output =
      run({std::vector<std::string>(num_sources, type), {type, type, type}, body}, rows, rows[0].size());
  if (!output) return;
  for (std::size_t row = 0; row < rows[0].size(); ++row) {
    UnsignedWide s[4] = {}, d[3] = {};
    for (std::size_t i = 0; i < num_sources; ++i) s[i] = low_bits(bits, static_cast<Wide>(rows[i][row]));
    expected(s, d);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(hex(output->results[i][row]), hex(low_bits(bits, static_cast<Wide>(d[i]))))
          << "%d" << i << ", row " << row << " of seed " << kSeed << "\n"
          << body << hex(rows[0][row]) << " " << hex(rows[1][row]);
    }
  }
}

TEST(IntegerInstructions, CarryChains) {
  for (const std::string& type : kWide) {
    const int bits = bits_of_type(type);
    const std::string t = "." + type + " ";
    check_chain(type,
                "  add.cc" + t + "%d0, %a, %b;\n  addc.cc" + t + "%d1, %c, %e;\n  addc" + t + "%d2, 0, 0;\n",
                4, [bits](const UnsignedWide* s, UnsignedWide* d) {
                  const UnsignedWide low = s[0] + s[1], high = s[2] + s[3] + (low >> bits);
                  d[0] = low, d[1] = high, d[2] = high >> bits;
                });
    check_chain(type,
                "  sub.cc" + t + "%d0, %a, %b;\n  subc.cc" + t + "%d1, %c, %e;\n  subc" + t + "%d2, 5, 0;\n",
                4, [bits](const UnsignedWide* s, UnsignedWide* d) {
                  const UnsignedWide low = s[0] - s[1], high = s[2] - s[3] - (low >> bits & 1);
                  d[0] = low, d[1] = high, d[2] = 5 - (high >> bits & 1);
                });
    // One adder does both: subtraction leaves a carry where it borrows nothing, and borrows where there is
    // none.
    check_chain(type,
                "  sub.cc" + t + "%d0, %a, %b;\n  addc.cc" + t + "%d1, %c, 0;\n  subc" + t + "%d2, %e, 0;\n",
                4, [bits](const UnsignedWide* s, UnsignedWide* d) {
                  d[0] = s[0] - s[1], d[1] = s[2] + (s[0] >= s[1]), d[2] = s[3] - 1 + (d[1] >> bits);
                });
    // Without .cc the carry stays what it was.
    check_chain(type,
                "  add.cc" + t + "%d0, %a, %b;\n  addc" + t + "%d1, %c, %e;\n  addc" + t + "%d2, %e, 0;\n", 4,
                [bits](const UnsignedWide* s, UnsignedWide* d) {
                  d[0] = s[0] + s[1];
                  d[1] = s[2] + s[3] + (d[0] >> bits), d[2] = s[3] + (d[0] >> bits);
                });
    // The middle instruction neither reads nor changes the carry.
    check_chain(type,
                "  add.cc" + t + "%d0, %a, -1;\n  sub" + t + "%d1, %b, %a;\n  addc" + t + "%d2, %b, 7;\n", 2,
                [](const UnsignedWide* s, UnsignedWide* d) {
                  d[0] = s[0] - 1, d[1] = s[1] - s[0], d[2] = s[1] + 7 + (s[0] != 0);
                });
  }
}

TEST(IntegerInstructions, MultiplyingCarryChains) {
  for (const std::string& type : kWide) {
    const int bits = bits_of_type(type);
    const std::string t = "." + type + " ";
    const auto halves = [type, bits](const UnsignedWide* s, UnsignedWide* low, UnsignedWide* high) {
      const Wide factors[2] = {number(value_type(type), static_cast<std::uint64_t>(s[0])),
                               number(value_type(type), static_cast<std::uint64_t>(s[1]))};
      *low = low_bits(bits, static_cast<Wide>(product(factors)));
      *high = low_bits(bits, static_cast<Wide>(product(factors) >> bits));
    };
    check_chain(type,
                "  mad.lo.cc" + t + "%d0, %a, %b, %c;\n  madc.hi.cc" + t + "%d1, %a, %b, %e;\n  madc.lo" + t +
                    "%d2, %a, %b, 0;\n",
                4, [=](const UnsignedWide* s, UnsignedWide* d) {
                  UnsignedWide low, high;
                  halves(s, &low, &high);
                  d[0] = low + s[2];
                  d[1] = high + s[3] + (d[0] >> bits);
                  d[2] = low + (d[1] >> bits);
                });
    check_chain(type,
                "  mad.hi.cc" + t + "%d0, %a, %b, %c;\n  madc.lo.cc" + t + "%d1, %a, %b, %e;\n  madc.hi" + t +
                    "%d2, %a, %b, %c;\n",
                4, [=](const UnsignedWide* s, UnsignedWide* d) {
                  UnsignedWide low, high;
                  halves(s, &low, &high);
                  d[0] = high + s[2];
                  d[1] = low + s[3] + (d[0] >> bits);
                  d[2] = high + s[2] + (d[1] >> bits);
                });
  }
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
