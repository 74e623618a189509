#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <weightpress/inspect.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/inspect_json.h"
#include "model/natural_order.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

// More lines than this push the summary off a screen: units named alike then share one.
constexpr std::size_t kMaxTileAnsLines = 1000;
constexpr std::size_t kMaxUnitLines = 24;
// Of kept units and the like; all of them are in the JSON.
constexpr std::size_t kMaxListed = 20;
// Takes the place of a number in a name. Names are UTF-8, where this byte does not occur.
constexpr char kNumberMark = '\xFF';

std::string with_commas(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (std::size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

std::string decimals(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string plural(std::uint64_t count, const std::string& what) {
  return with_commas(count) + " " + what + (count == 1 ? "" : "s");
}

// The first row holds the titles. The last column, a name of any length, is on the left; all others are
// right-aligned.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i + 1 < row.size()) out.append(widths[i] - row[i].size(), ' ');
      out += row[i];
      out += i + 1 < row.size() ? "  " : "\n";
    }
  }
  return out;
}

// Units whose names differ in nothing but numbers.
struct UnitGroup {
  std::vector<const InspectedUnit*> units;

  template <class Member>
  std::string range(Member member, int digits = 0) const {
    const auto [least, most] =
        std::ranges::minmax(units, {}, [&](const InspectedUnit* unit) { return member(*unit); });
    const std::string low = decimals(static_cast<double>(member(*least)), digits);
    const std::string high = decimals(static_cast<double>(member(*most)), digits);
    return low == high ? low : low + "-" + high;
  }
  std::string codes() const {
    const auto shortest = std::ranges::min(units, {}, &InspectedUnit::shortest_code_bits)->shortest_code_bits;
    const auto longest = std::ranges::max(units, {}, &InspectedUnit::longest_code_bits)->longest_code_bits;
    return std::to_string(shortest) + "-" + std::to_string(longest);
  }
  std::uint64_t sum(std::uint64_t InspectedUnit::* member) const {
    std::uint64_t total = 0;
    for (const InspectedUnit* unit : units) total += unit->*member;
    return total;
  }
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// `name` with each number replaced by the mark; the numbers are appended to `numbers`.
std::string without_numbers(std::string_view name, std::vector<std::string>& numbers) {
  std::string shape;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (!is_digit(name[i])) {
      shape += name[i];
    } else if (i == 0 || !is_digit(name[i - 1])) {
      shape += kNumberMark;
      numbers.emplace_back(1, name[i]);
    } else {
      numbers.back() += name[i];
    }
  }
  return shape;
}

// "model.layers.{0-35}": the least and the largest of each number.
std::string group_name(const UnitGroup& group) {
  std::vector<std::string> least, most;
  std::string shape;
  for (const InspectedUnit* unit : group.units) {
    std::vector<std::string> numbers;
    shape = without_numbers(unit->name, numbers);
    if (least.empty()) least = most = numbers;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      least[i] = std::min(least[i], numbers[i], model::natural_less);
      most[i] = std::max(most[i], numbers[i], model::natural_less);
    }
  }
  std::string name;
  std::size_t number = 0;
  for (const char c : shape) {
    if (c != kNumberMark) {
      name += c;
      continue;
    }
    name += least[number] == most[number] ? least[number] : "{" + least[number] + "-" + most[number] + "}";
    ++number;
  }
  return name;
}

std::vector<UnitGroup> group_units(const std::vector<InspectedUnit>& units) {
  std::vector<UnitGroup> groups;
  std::map<std::string, std::size_t> group_of;
  for (const InspectedUnit& unit : units) {
    std::vector<std::string> numbers;
    const std::string key = units.size() > kMaxUnitLines ? without_numbers(unit.name, numbers) : unit.name;
    const auto [found, is_new] = group_of.emplace(key, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].units.push_back(&unit);
  }
  return groups;
}

std::string unit_table(const InspectReport& report) {
  const std::vector<UnitGroup> groups = group_units(report.units);
  const bool folded = groups.size() < report.units.size();
  std::vector<std::vector<std::string>> rows = {
      {"tensors", "weights", "size", "bits/weight", "tables", "codes", "exponents", "unit"}};
  if (folded) rows[0].insert(rows[0].begin(), "units");
  for (const UnitGroup& group : groups) {
    std::vector<std::string> row = {
        group.range([](const InspectedUnit& unit) { return unit.num_tensors; }),
        with_commas(group.sum(&InspectedUnit::num_weights)),
        format_bytes(group.sum(&InspectedUnit::size_bytes)),
        group.range([](const InspectedUnit& unit) { return unit.bits_per_weight(); }, 2),
        group.range([](const InspectedUnit& unit) { return unit.num_tables; }),
        group.codes(),
        group.range([](const InspectedUnit& unit) { return unit.num_exponents; }),
        model::printable(group_name(group))};
    if (folded) row.insert(row.begin(), with_commas(group.units.size()));
    rows.push_back(std::move(row));
  }
  return table(rows);
}

std::string dtype_table(const InspectReport& report) {
  std::vector<std::vector<std::string>> rows = {{"tensors", "elements", "size", "dtype"}};
  for (const DtypeTotal& total : report.tensors) {
    rows.push_back({with_commas(total.num_tensors), with_commas(total.num_elements),
                    format_bytes(total.size_bytes), total.dtype});
  }
  return table(rows);
}

// A line a unit below a heading, cut after kMaxListed.
template <class List, class Text>
std::string listing(const std::string& heading, const List& elements, Text text) {
  if (elements.empty()) return "";
  std::string out = "\n" + heading + "\n";
  for (std::size_t i = 0; i < std::min(elements.size(), kMaxListed); ++i)
    out += "  " + model::printable(elements[i].unit) + ": " + model::printable(text(elements[i])) + "\n";
  if (elements.size() > kMaxListed)
    out += "  and " + with_commas(elements.size() - kMaxListed) + " more (--json lists all)\n";
  return out;
}

std::string file_line(const InspectReport& report) {
  const auto with_metadata = std::ranges::count_if(report.files, &InspectedFile::has_metadata);
  const std::string where = report.files.size() == 1
                                ? (with_metadata == 1 ? "with metadata" : "no metadata")
                                : "metadata in " + with_commas(static_cast<std::uint64_t>(with_metadata));
  return "files        " + with_commas(report.files.size()) + ", " + format_bytes(report.file_bytes()) +
         ", " + where + "\n";
}

std::string describe_df11(const InspectReport& report) {
  std::uint64_t num_tensors = 0, num_kept = 0;
  for (const InspectedUnit& unit : report.units) num_tensors += unit.num_tensors;
  for (const DtypeTotal& total : report.tensors) num_kept += total.num_tensors;
  const double bits =
      8 * static_cast<double>(report.unit_bytes()) / static_cast<double>(report.num_weights());

  std::string out = "format       DF11, " + plural(report.units.size(), "unit") + " made of " +
                    plural(num_tensors, "tensor") + "\n" + file_line(report);
  if (const auto& record = report.record) {
    out += "definition   " + model::printable(record->definition) + ", layout " +
           model::printable(record->layout) + " (" + model::printable(record->file) + " of weightpress " +
           model::printable(record->weightpress) + ")\n";
  }
  if (const auto& config = report.config) {
    out += "config.json  dfloat11_config, version " + model::printable(config->version) + ", " +
           plural(config->num_patterns, "pattern") + "\n";
  }
  out += "weights      " + with_commas(report.num_weights()) + " in " + format_bytes(report.unit_bytes()) +
         ", " + decimals(bits, 2) + " bits each\n";
  out += "kept         " + plural(num_kept, "tensor") + ", " + format_bytes(report.tensor_bytes());
  for (const DtypeTotal& total : report.tensors) {
    out += (&total == &report.tensors[0] ? ": " : ", ") + with_commas(total.num_tensors) + " " + total.dtype +
           (report.tensors.size() == 1 ? "" : " (" + format_bytes(total.size_bytes) + ")");
  }
  out += "\nratio        " + decimals(100 * report.ratio(), 2) + "% of the size with BF16 weights\n\n" +
         unit_table(report);
  if (const auto& record = report.record) {
    out += listing("not stored as DF11:", record->kept_units,
                   [](const InspectedRecord::KeptUnit& kept) { return kept.reason; });
    out += listing("not coded as the official compressor does:", record->own_coding,
                   [](const InspectedRecord::OwnCoding& own) {
                     std::string reasons;
                     for (const std::string& reason : own.reasons)
                       reasons += (reasons.empty() ? "" : "; ") + reason;
                     return reasons;
                   });
  }
  return out;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::string describe_tile_ans(const InspectReport& report) {
  std::uint64_t before = 0, after = 0, num_kept = 0;
  for (const InspectedTileAns& tensor : report.tile_ans) {
    before += tensor.source_bytes;
    after += tensor.size_bytes;
  }
  for (const DtypeTotal& total : report.tensors) num_kept += total.num_tensors;
  std::string out = "format       Tile-ANS, " + plural(report.tile_ans.size(), "tensor") + "\n" +
                    file_line(report) + "containers   " + format_bytes(after) + " for " +
                    format_bytes(before);
  if (before > 0) {
    out += ", " + decimals(100 * static_cast<double>(after) / static_cast<double>(before), 2) + "%";
  }
  out += "\nkept         " + plural(num_kept, "tensor") + ", " + format_bytes(report.tensor_bytes()) + "\n\n";
  std::vector<std::vector<std::string>> rows = {
      {"dtype", "elements", "size", "bits/element", "tile", "precision", "raw lanes", "shape", "tensor"}};
  for (std::size_t i = 0; i < std::min(report.tile_ans.size(), kMaxTileAnsLines); ++i) {
    const InspectedTileAns& tensor = report.tile_ans[i];
    rows.push_back(
        {tensor.dtype, with_commas(tensor.num_elements), format_bytes(tensor.size_bytes),
         decimals(tensor.bits_per_element(), 2), tensor.is_raw ? "-" : std::to_string(tensor.tile_elements),
         tensor.is_raw ? "-" : std::to_string(tensor.probability_bits),
         tensor.is_raw ? "raw container"
                       : std::to_string(tensor.num_raw_lanes) + " of " + std::to_string(tensor.num_lanes),
         shape_text(tensor.shape), model::printable(tensor.name)});
  }
  out += table(rows);
  if (report.tile_ans.size() > kMaxTileAnsLines) {
    out += "and " + with_commas(report.tile_ans.size() - kMaxTileAnsLines) + " more (--json lists all)\n";
  }
  return out;
}

std::string describe_source(const InspectReport& report) {
  std::uint64_t num_tensors = 0, num_other = 0, other_bytes = 0;
  for (const DtypeTotal& total : report.tensors) {
    num_tensors += total.num_tensors;
    if (total.dtype == "BF16") continue;
    num_other += total.num_tensors;
    other_bytes += total.size_bytes;
  }
  std::string out =
      "format       safetensors, not compressed, " + plural(num_tensors, "tensor") + "\n" + file_line(report);
  if (const auto& source = report.source) {
    out += "definition   " + model::printable(source->definition) + ": " + plural(source->num_units, "unit") +
           " of " + with_commas(source->unit_weights) + " weights\n";
  }
  if (num_other > 0) {
    out += "not BF16     " + plural(num_other, "tensor") + ", " + format_bytes(other_bytes) +
           ": DF11 holds BF16 weights only\n";
  }
  return num_tensors == 0 ? out : out + "\n" + dtype_table(report);
}

int run(const InspectOptions& options, bool as_json) {
  const InspectReport report = inspect(options);
  if (as_json) {
    print(inspect_json(report, options.path.string()));
    return kExitDone;
  }
  print(report.is_df11()       ? describe_df11(report)
        : report.is_tile_ans() ? describe_tile_ans(report)
                               : describe_source(report));
  for (const std::string& note : report.notes)
    std::fprintf(stderr, "note: %s\n", model::escaped_for_terminal(note).c_str());
  return kExitDone;
}

}  // namespace

void add_inspect_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<InspectOptions>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("inspect", "Tell what a checkpoint, or a DF11 or Tile-ANS output holds");
  command
      ->add_option("PATH", options->path, "a .safetensors file, or a folder of them with or without an index")
      ->required();
  command->add_flag("--json", *as_json, "one JSON object with everything, each unit included");
  command->footer(
      "Example:\n  weightpress inspect Qwen3-8B-DF11\n\n"
      "Reads headers and code lengths, no weights. Exit codes: 0 done, 1 a file is corrupt, 2 not found.");
  command->callback(
      [options, as_json, &action] { action = [options, as_json] { return run(*options, *as_json); }; });
}

}  // namespace weightpress::cli
