#include "ptxvm/instruction_test.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

namespace weightpress::ptxvm::instructions {
namespace {

constexpr std::array<const char*, 4> kSourceNames = {"%a", "%b", "%c", "%e"};
constexpr std::uint64_t kUntouched = 0xA5A5'A5A5'A5A5'A5A5;

int register_bits(ValueType type) {
  return type.kind == 'p' ? 1 : std::max(type.bits, 16);
}

/// f32 and f64 registers are declared as such or as plain bits, both of which compilers do.
std::string register_type(ValueType type, bool plain) {
  if (type.kind == 'p') return "pred";
  return (type.kind == 'f' && !plain ? "f" : "b") + std::to_string(register_bits(type));
}

std::string move_of(ValueType type) {
  return type.kind == 'p' ? "mov.pred" : "mov.b" + std::to_string(register_bits(type));
}

/// Whether one register may stand for both: not .f32 for .u32.
bool same_register(ValueType a, ValueType b) {
  return register_bits(a) == register_bits(b) &&
         ((a.kind == 'f') == (b.kind == 'f') || a.kind == 'b' || b.kind == 'b');
}

bool is_nan(ValueType type, std::uint64_t bits) {
  if (type.kind != 'f') return false;
  return type.bits == 32 ? std::isnan(as_f32(bits)) : std::isnan(as_f64(bits));
}

std::string kernel_text(const Snippet& snippet, std::size_t num_elements) {
  std::string registers, loads, stores;
  for (std::size_t i = 0; i < snippet.sources.size(); ++i) {
    const ValueType type = value_type(snippet.sources[i]);
    const std::string name = kSourceNames[i];
    const std::string place = "[%in+" + std::to_string(i * num_elements * 8) + "];\n";
    registers += "  .reg ." + register_type(type, i % 2 == 1) + " " + name + ";\n";
    if (type.kind == 'p') {
      loads += "  ld.global.u32 %bit, " + place + "  and.b32 %bit, %bit, 1;\n  setp.ne.u32 " + name +
               ", %bit, 0;\n";
    } else {
      loads += "  ld.global.b" + std::to_string(register_bits(type)) + " " + name + ", " + place;
    }
  }
  for (std::size_t i = 0; i < snippet.results.size(); ++i) {
    const ValueType type = value_type(snippet.results[i]);
    const std::string name = "%d" + std::to_string(i);
    const std::string place = "[%out+" + std::to_string(i * num_elements * 8) + "]";
    registers += "  .reg ." + register_type(type, i % 2 == 1) + " " + name + ";\n";
    if (type.kind == 'p') {
      stores += "  selp.u32 %bit, 1, 0, " + name + ";\n  st.global.u32 " + place + ", %bit;\n";
    } else {
      stores += "  st.global.b" + std::to_string(register_bits(type)) + " " + place + ", " + name + ";\n";
    }
  }
  return ".version 8.3\n.target sm_90\n.address_size 64\n" + snippet.module_scope +
         ".visible .entry k(\n"
         "  .param .u64 in,\n  .param .u64 out,\n  .param .u64 extra,\n  .param .u32 count\n)\n{\n"
         "  .reg .pred %past, %guard;\n"
         "  .reg .b32 %t, %i, %bit, %count, %block, %threads;\n"
         "  .reg .b64 %in, %out, %x, %offset;\n" +
         registers +
         "  mov.u32 %t, %tid.x;\n  mov.u32 %block, %ctaid.x;\n  mov.u32 %threads, %ntid.x;\n"
         "  mad.lo.u32 %i, %block, %threads, %t;\n"
         "  ld.param.u32 %count, [count];\n"
         "  setp.ge.u32 %past, %i, %count;\n"
         "  @%past bra $end;\n"
         "  mul.wide.u32 %offset, %i, 8;\n"
         "  ld.param.u64 %in, [in];\n  add.s64 %in, %in, %offset;\n"
         "  ld.param.u64 %out, [out];\n  add.s64 %out, %out, %offset;\n"
         "  ld.param.u64 %x, [extra];\n" +
         loads + snippet.body + stores + "$end:\n  ret;\n}\n";
}

/// As a literal of a type, written as compilers do.
std::string literal(ValueType type, std::uint64_t bits) {
  char text[40];
  if (type.kind == 'f') {
    std::snprintf(text, sizeof text, type.bits == 32 ? "0f%08llX" : "0d%016llX",
                  static_cast<unsigned long long>(low_bits(type.bits, bits)));
  } else if (type.kind == 'u' && bits % 2 == 0) {
    std::snprintf(text, sizeof text, "0x%llX", static_cast<unsigned long long>(low_bits(type.bits, bits)));
  } else if (type.kind == 'u') {
    std::snprintf(text, sizeof text, "%llu", static_cast<unsigned long long>(low_bits(type.bits, bits)));
  } else {
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(number({'s', type.bits}, bits)));
  }
  return text;
}

Values immediates_of(ValueType type) {
  if (type.kind == 'f') {
    return type.bits == 32 ? Values{0x3F000000, 0xFF800000, 0x00000007}
                           : Values{0x3FE0000000000000, 0xFFF0000000000000, 0x0000000000000007};
  }
  const std::uint64_t top = std::uint64_t{1} << (type.bits - 1);
  return {0, 7, 33, low_bits(type.bits, -1), top, low_bits(type.bits, top + 33)};
}

struct Form {
  std::string name;
  std::string body;
  std::array<std::optional<std::uint64_t>, 4> constants = {};  ///< by source
  bool all_same = false;                                       ///< the first source stands for all
  int guard = -1;                                              ///< parity of the elements that do not run it
};

std::string call_of(const Operation& operation, const std::string& destination,
                    const std::vector<std::string>& sources) {
  std::string text = operation.opcode + " " + destination;
  for (const std::string& source : sources) text += ", " + source;
  return text + operation.last_operands + ";\n";
}

constexpr std::uint64_t kOld = 0x3FC1'2345'3E99'0001;

std::vector<Form> forms_of(const Operation& operation) {
  const ValueType result = value_type(operation.result);
  const std::size_t count = operation.sources.size();
  const std::vector<std::string> plain(kSourceNames.begin(), kSourceNames.begin() + count);
  std::vector<ValueType> types;
  for (const std::string& name : operation.sources) types.push_back(value_type(name));
  std::vector<Form> forms;
  const auto destination = [&forms] { return "%d" + std::to_string(forms.size()); };

  forms.push_back({"registers", call_of(operation, destination(), plain)});
  for (std::size_t i = 0; i < count; ++i) {
    if (!same_register(types[i], result)) continue;
    std::vector<std::string> sources = plain;
    sources[i] = destination();
    forms.push_back({"destination as source " + std::to_string(i),
                     move_of(result) + " " + destination() + ", " + plain[i] + ";\n  " +
                         call_of(operation, destination(), sources)});
  }
  if (std::all_of(
          types.begin(), types.end(),
          [&](ValueType type) { return same_register(type, types[0]) && type.bits == types[0].bits; }) &&
      count > 1) {
    forms.push_back({"one register as all sources",
                     call_of(operation, destination(), std::vector<std::string>(count, plain[0])),
                     {},
                     true});
  }
  for (int parity = 0; parity < 2; ++parity) {
    const std::string old =
        result.kind == 'p' ? "1" : literal({result.kind == 'f' ? 'f' : 's', register_bits(result)}, kOld);
    forms.push_back({parity == 0 ? "guard" : "negated guard",
                     move_of(result) + " " + destination() + ", " + old + ";\n  " +
                         (parity == 0 ? "@%guard " : "@!%guard ") + call_of(operation, destination(), plain),
                     {},
                     false,
                     parity});
  }
  // A constant as each source, then as each two that stand together.
  const auto constants_of = [&](std::size_t i) {
    if (i >= count || !operation.immediates || types[i].kind == 'p' || types[i].bits < 16) return Values();
    Values values = immediates_of(types[i]);
    if (i > 0)
      std::erase_if(values, [&](std::uint64_t value) { return value > operation.largest_immediate; });
    return values;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const Values first = constants_of(i), second = constants_of(i + 1);
    for (std::size_t k = 0; k < first.size() + (second.empty() ? 0 : 3); ++k) {
      const bool both = k >= first.size();
      std::vector<std::string> sources = plain;
      Form form;
      form.constants[i] = first[k % first.size()];
      sources[i] = literal(types[i], *form.constants[i]);
      form.name = "source " + std::to_string(i) + " is " + sources[i];
      if (both) {
        form.constants[i + 1] = second[(k + 1) % second.size()];
        sources[i + 1] = literal(types[i + 1], *form.constants[i + 1]);
        form.name += ", the next " + sources[i + 1];
      }
      form.body = call_of(operation, destination(), sources);
      forms.push_back(form);
    }
  }
  return forms;
}

void compare(const Operation& operation, const Form& form, const std::vector<Values>& rows,
             const Values& got) {
  const ValueType result = value_type(operation.result);
  const int bits = register_bits(result);
  std::vector<ValueType> types;
  for (const std::string& name : operation.sources) types.push_back(value_type(name));
  std::array<Wide, 4> sources{};
  int num_failures = 0;
  for (std::size_t row = 0; row < rows[0].size(); ++row) {
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::uint64_t value = form.all_same ? rows[0][row] : form.constants[i].value_or(rows[i][row]);
      sources[i] = number(types[i], value);
    }
    if (operation.is_open && operation.is_open(sources.data())) continue;
    std::uint64_t expected = low_bits(bits, operation.expected(sources.data()));
    if (form.guard >= 0 && static_cast<int>(row % 2) != form.guard)
      expected = low_bits(bits, result.kind == 'p' ? 1 : static_cast<Wide>(kOld));
    if (got[row] == expected || (is_nan(result, expected) && is_nan(result, got[row]))) continue;
    if (++num_failures > 2) continue;
    std::string text = operation.opcode + ", " + form.name + ", row " + std::to_string(row) + ":";
    for (std::size_t i = 0; i < types.size(); ++i)
      text += " " + hex(low_bits(register_bits(types[i]), sources[i]));
    ADD_FAILURE() << text << " gives " << hex(got[row]) << ", expected " << hex(expected) << "; seed "
                  << kSeed;
  }
  if (num_failures > 2) ADD_FAILURE() << operation.opcode << ": " << num_failures << " rows differ";
}

void check_forms(const Operation& operation, const std::vector<Values>& rows, std::vector<Form> forms) {
  Snippet snippet{operation.sources, std::vector<std::string>(forms.size(), operation.result),
                  "  and.b32 %bit, %i, 1;\n  setp.eq.u32 %guard, %bit, 0;\n"};
  for (const Form& form : forms) snippet.body += "  " + form.body;
  const std::optional<SnippetOutput> output = run(snippet, rows, rows[0].size());
  if (!output) return;
  for (std::size_t i = 0; i < forms.size(); ++i) compare(operation, forms[i], rows, output->results[i]);
}

struct Run {
  std::string text;
  Result<LaunchReport> report;
  std::optional<SnippetOutput> output;
};

Run run_once(const Snippet& snippet, const std::vector<Values>& sources, std::size_t num_elements) {
  Run result{kernel_text(snippet, num_elements), Unexpected(ErrorCode::kUsage, "not run"), {}};
  Memory memory;
  auto module = LoadedModule::load(result.text, memory);
  if (!module) {
    result.report = Unexpected(module.error());
    return result;
  }
  Values in;
  for (const Values& column : sources) in.insert(in.end(), column.begin(), column.begin() + num_elements);
  Values out(snippet.results.size() * num_elements, kUntouched);
  std::vector<std::uint64_t> extra((snippet.extra_bytes + 7) / 8);
  const auto bytes_of = [](Values& values) {
    return std::span<std::uint8_t>(reinterpret_cast<std::uint8_t*>(values.data()), values.size() * 8);
  };
  const std::array<std::uint64_t, 4> parameters = {
      memory.adopt(bytes_of(in), {.name = "in"}), memory.adopt(bytes_of(out), {.name = "out"}),
      memory.adopt(bytes_of(extra), {.name = "extra"}), num_elements};
  const LaunchConfig config{
      {static_cast<std::uint32_t>((num_elements + snippet.block - 1) / snippet.block)}, {snippet.block}, 0};
  result.report =
      launch(**module, "k", config, std::span<const std::uint64_t>(parameters), memory, snippet.options);
  if (!result.report || result.report->fault) return result;

  SnippetOutput& output = result.output.emplace();
  for (std::size_t i = 0; i < snippet.results.size(); ++i) {
    Values& column =
        output.results.emplace_back(out.begin() + i * num_elements, out.begin() + (i + 1) * num_elements);
    const ValueType type = value_type(snippet.results[i]);
    const int bits = type.kind == 'p' ? 32 : register_bits(type);
    for (std::uint64_t& value : column) {
      if (bits < 64 && value >> bits != kUntouched >> bits) {
        ADD_FAILURE() << "a store wrote too much, or nothing: " << hex(value);
        break;
      }
      value = low_bits(bits, static_cast<Wide>(value));
    }
  }
  const auto bytes = bytes_of(extra);
  output.extra.assign(bytes.begin(), bytes.begin() + snippet.extra_bytes);
  return result;
}

}  // namespace

ValueType value_type(std::string_view name) {
  if (name == "pred") return {'p', 1};
  return {name[0], std::stoi(std::string(name.substr(1)))};
}

Wide number(ValueType type, std::uint64_t bits) {
  const std::uint64_t low = low_bits(type.bits, static_cast<Wide>(bits));
  if (type.kind != 's' || (low >> (type.bits - 1)) == 0) return low;
  return static_cast<Wide>(low) - (static_cast<Wide>(1) << type.bits);
}

std::uint64_t low_bits(int bits, Wide value) {
  const auto low = static_cast<std::uint64_t>(value);
  return bits == 64 ? low : low & ((std::uint64_t{1} << bits) - 1);
}

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Values edges(std::string_view name) {
  const ValueType type = value_type(name);
  if (type.kind == 'p') return {0, 1};
  if (type.kind == 'f' && type.bits == 32) {
    Values values = {0,          1,          0x000002A0, 0x007FFFFF, 0x00800000, 0x00800001, 0x3EFFFFFF,
                     0x3F000000, 0x3F800000, 0x3F800001, 0x3FC00000, 0x40200000, 0x40490FDB, 0x4B000001,
                     0x4EFFFFFF, 0x4F000000, 0x4F800000, 0x5F000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000,
                     0x7F800001, 0x437F8000, 0x20000000, 0x1F800000};
    const std::size_t count = values.size();
    for (std::size_t i = 0; i < count; ++i) values.push_back(values[i] | 0x80000000);
    return values;
  }
  if (type.kind == 'f') {
    Values values;
    for (const double value : {0.0,
                               5e-324,
                               2.2250738585072009e-308,
                               2.2250738585072014e-308,
                               0.49999999999999994,
                               0.5,
                               1.0,
                               1.5,
                               2.5,
                               1.0000000000000002,
                               3.141592653589793,
                               4503599627370497.5,
                               2147483647.5,
                               4294967295.0,
                               9.3e18,
                               18446744073709551616.0,
                               1e38,
                               3.4028235677973366e38,
                               1e-45,
                               1.7976931348623157e308,
                               std::numeric_limits<double>::infinity()})
      for (const double sign : {1.0, -1.0})
        values.push_back(static_cast<std::uint64_t>(bits_of(sign * value)));
    values.insert(values.end(), {0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001});
    return values;
  }
  const int bits = type.bits;
  const std::uint64_t top = std::uint64_t{1} << (bits - 1);
  Values values = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255};
  for (const std::uint64_t value :
       Values{top, top - 1, top + 1, ~std::uint64_t{0}, ~std::uint64_t{1}, top / 2, 0x5555555555555555,
              0xAAAAAAAAAAAAAAAA, 0x0123456789ABCDEF})
    values.push_back(low_bits(bits, static_cast<Wide>(value)));
  return values;
}

Values random_values(std::string_view name, std::size_t count, Random& random) {
  const ValueType type = value_type(name);
  Values values(count);
  for (std::uint64_t& value : values) {
    value = random.next();
    const std::uint64_t choice = random.below(4);
    if (type.kind == 'f') {
      // Exponents near the middle, so that sums cancel and products stay in range.
      if (choice < 2 && type.bits == 32) value = (value & 0x80FFFFFF) | ((120 + random.below(16)) << 23);
      if (choice < 2 && type.bits == 64)
        value = (value & 0x800FFFFFFFFFFFFF) | ((1010 + random.below(30)) << 52);
      if (choice == 2 && type.bits == 64)  // what f32 can nearly hold
        value = static_cast<std::uint64_t>(
            bits_of(std::ldexp(1.0 + random.uniform(), static_cast<int>(random.below(290)) - 155)));
    } else if (choice == 0) {
      value = random.below(80);
    } else if (choice == 1) {
      value >>= random.below(64);
    } else if (choice == 2) {
      value = ~(value >> random.below(64));
    }
  }
  return values;
}

std::vector<Values> columns(const std::vector<std::string>& types, std::uint64_t seed, std::size_t count) {
  Random random(seed);
  std::vector<Values> of_type;
  std::size_t total = 1;
  for (const std::string& type : types) {
    Values values = edges(type);
    if (types.size() > 2 && values.size() > 12) {
      for (std::size_t i = values.size() - 1; i > 0; --i) std::swap(values[i], values[random.below(i + 1)]);
      values.resize(12);
    }
    total *= values.size();
    of_type.push_back(std::move(values));
  }
  std::vector<Values> rows(types.size());
  for (std::size_t row = 0; row < total; ++row) {
    std::size_t rest = row;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::uint64_t noise = random.next();
      const ValueType type = value_type(types[i]);
      rows[i].push_back(of_type[i][rest % of_type[i].size()] | (noise & ~low_bits(type.bits, -1)));
      rest /= of_type[i].size();
    }
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    const Values values = random_values(types[i], count, random);
    rows[i].insert(rows[i].end(), values.begin(), values.end());
  }
  return rows;
}

std::vector<Values> all_16_bit(const std::vector<std::string>& types, std::uint64_t seed) {
  constexpr std::size_t kCount = 65'536;
  Random random(seed);
  std::vector<Values> rows(types.size());
  for (std::size_t swept = 0; swept < std::min<std::size_t>(types.size(), 2); ++swept) {
    if (value_type(types[swept]).bits > 16) continue;
    for (std::size_t i = 0; i < types.size(); ++i) {
      Values values = random_values(types[i], kCount, random);
      const Values some = edges(types[i]);
      for (std::size_t row = 0; row < kCount; ++row) {
        if (i == swept)
          values[row] = (values[row] & ~std::uint64_t{0xFFFF}) | row;
        else if (row % 3 == 0)
          values[row] = some[random.below(some.size())];
      }
      rows[i].insert(rows[i].end(), values.begin(), values.end());
    }
  }
  if (types.size() == 2 && value_type(types[0]).bits <= 16 && value_type(types[1]).bits <= 16) {
    // All pairs of 8 bits, as a sign-extending load leaves them.
    for (std::uint64_t row = 0; row < kCount; ++row) {
      rows[0].push_back(static_cast<std::uint64_t>(static_cast<std::int8_t>(row & 255)));
      rows[1].push_back(static_cast<std::uint64_t>(static_cast<std::int8_t>(row >> 8)));
    }
  }
  return rows;
}

std::optional<SnippetOutput> run(const Snippet& snippet, const std::vector<Values>& sources,
                                 std::size_t num_elements) {
  Run result = run_once(snippet, sources, num_elements);
  if (!result.report)
    ADD_FAILURE() << result.report.error().message << "\n" << snippet.body;
  else if (result.report->fault)
    ADD_FAILURE() << result.report->fault->message << "\n" << snippet.body;
  return std::move(result.output);
}

std::optional<Fault> fault_of(const Snippet& snippet, const std::vector<Values>& sources,
                              std::size_t num_elements) {
  Run result = run_once(snippet, sources, num_elements);
  if (!result.report) {
    ADD_FAILURE() << result.report.error().message << "\n" << snippet.body;
    return {};
  }
  EXPECT_TRUE(result.report->fault.has_value()) << "no fault\n" << snippet.body;
  return result.report->fault;
}

void check(const Operation& operation, const std::vector<Values>& rows) {
  check_forms(operation, rows, forms_of(operation));
}

void check(const Operation& operation) {
  check(operation, columns(operation.sources, kSeed));
  const bool has_small = std::any_of(
      operation.sources.begin(),
      operation.sources.begin() + std::min<std::size_t>(operation.sources.size(), 2),
      [](const std::string& type) { return value_type(type).kind != 'p' && value_type(type).bits <= 16; });
  if (has_small) check_forms(operation, all_16_bit(operation.sources, kSeed), {forms_of(operation)[0]});
}

std::string load_error(const std::string& ptx) {
  Memory memory;
  const auto module = LoadedModule::load(ptx, memory);
  if (module) {
    ADD_FAILURE() << "it loads";
    return "";
  }
  EXPECT_EQ(module.error().code, ErrorCode::kCorruptFile);
  return module.error().message;
}

std::string module_text(const std::string& body, const std::string& module_scope) {
  return kernel_text({{}, {}, body, module_scope}, 0);
}

}  // namespace weightpress::ptxvm::instructions
