#include "model/shard_series.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace weightpress::model {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kOf = "-of-";

/// The digits at the end of `text`, which are taken off, with the dash before them.
std::optional<std::string_view> take_number(std::string_view& text) {
  std::size_t begin = text.size();
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  const std::string_view digits = text.substr(begin);
  if (digits.empty() || digits.size() > 9 || begin == 0) return std::nullopt;
  text = text.substr(0, begin);
  return digits;
}

std::uint64_t number_of(std::string_view digits) {
  std::uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

using Series = std::pair<std::string, std::uint64_t>;  // stem and count

}  // namespace

std::string ShardName::sibling(std::uint64_t other_number) const {
  const auto padded = [&](std::uint64_t value) {
    const std::string text = std::to_string(value);
    return std::string(digits - std::min(digits, text.size()), '0') + text;
  };
  return stem + "-" + padded(other_number) + std::string(kOf) + padded(count) + std::string(kSuffix);
}

std::optional<ShardName> parse_shard_name(std::string_view file_name) {
  if (!file_name.ends_with(kSuffix)) return std::nullopt;
  file_name.remove_suffix(kSuffix.size());
  const auto count = take_number(file_name);
  if (!count || !file_name.ends_with(kOf)) return std::nullopt;
  file_name.remove_suffix(kOf.size());
  const auto number = take_number(file_name);
  if (!number || !file_name.ends_with('-')) return std::nullopt;
  file_name.remove_suffix(1);
  return ShardName{std::string(file_name), number_of(*number), number_of(*count), number->size()};
}

std::optional<std::string> find_missing_shard(const std::vector<std::string>& file_names) {
  std::map<Series, std::pair<ShardName, std::set<std::uint64_t>>> series;
  for (const std::string& name : file_names) {
    const auto shard = parse_shard_name(name);
    if (!shard) continue;
    auto& [example, numbers] = series[{shard->stem, shard->count}];
    example = *shard;
    numbers.insert(shard->number);
  }
  for (const auto& [key, found] : series) {
    const auto& [example, numbers] = found;
    const std::uint64_t first = numbers.contains(0) ? 0 : 1;
    // Ends after as many steps as there are files, whatever count a name claims.
    for (std::uint64_t number = first; number < first + key.second; ++number)
      if (!numbers.contains(number)) return example.sibling(number);
  }
  return std::nullopt;
}

std::optional<std::pair<std::string, std::string>> find_foreign_shard(
    const std::vector<std::string>& file_names) {
  std::optional<Series> series;
  const std::string* shard_file = nullptr;
  for (const std::string& name : file_names) {
    const auto shard = parse_shard_name(name);
    if (!shard || shard->count < 2) continue;
    series = Series{shard->stem, shard->count};
    shard_file = &name;
    break;
  }
  if (!series) return std::nullopt;
  for (const std::string& name : file_names) {
    const auto shard = parse_shard_name(name);
    if (!shard || Series{shard->stem, shard->count} != *series) return std::pair(*shard_file, name);
  }
  return std::nullopt;
}

}  // namespace weightpress::model
