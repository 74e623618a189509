#include "ptxvm/ptx_names.h"

#include <charconv>

namespace weightpress::ptxvm {
namespace {

constexpr std::size_t kMaxDigits = 7;  // of a register's number: fewer than kMaxPtxItems are declared

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

bool ScopedMap::add(std::string_view name, std::uint32_t value) {
  const Entry entry{value, depth()};
  const auto [place, is_new] = entries_.try_emplace(name, entry);
  if (!is_new && place->second.depth == depth()) return false;
  hidden_.push_back({name, is_new ? std::nullopt : std::optional<Entry>(place->second)});
  place->second = entry;
  return true;
}

const ScopedMap::Entry* ScopedMap::find(std::string_view name) const {
  const auto place = entries_.find(name);
  return place == entries_.end() ? nullptr : &place->second;
}

void ScopedMap::close() {
  for (; hidden_.size() > marks_.back(); hidden_.pop_back()) {
    const Hidden& hidden = hidden_.back();
    if (hidden.entry) {
      entries_[hidden.name] = *hidden.entry;
    } else {
      entries_.erase(hidden.name);
    }
  }
  marks_.pop_back();
}

bool ScopedNames::add_variable(std::string_view name, std::uint32_t index) {
  return names_.add(name, 2 * index + 1);
}

bool ScopedNames::add_register(std::string_view name, Type type) {
  std::uint32_t number = 0;
  const std::uint32_t range = find_range(name, number);
  if (range != kNone && all_ranges_[range].depth == depth()) return false;
  if (!names_.add(name, 2 * static_cast<std::uint32_t>(function_.registers.size()))) return false;
  add_to_function(name, type);
  return true;
}

bool ScopedNames::add_range(std::string_view prefix, Type type, std::uint32_t num) {
  const ScopedMap::Entry* const outer = ranges_.find(prefix);
  all_ranges_.push_back({type, num, depth(), outer == nullptr ? kNone : outer->value, {}});
  if (!ranges_.add(prefix, static_cast<std::uint32_t>(all_ranges_.size() - 1))) return false;
  has_digit_prefixes_ = has_digit_prefixes_ || is_digit(prefix.back());
  return true;
}

std::optional<ScopedNames::Name> ScopedNames::find(std::string_view name) {
  const ScopedMap::Entry* const entry = names_.find(name);
  std::uint32_t number = 0;
  const std::uint32_t in_range = find_range(name, number);
  if (in_range == kNone || (entry != nullptr && entry->depth >= all_ranges_[in_range].depth)) {
    if (entry == nullptr) return std::nullopt;
    return Name{entry->value % 2 == 1, entry->value / 2};
  }
  Range& range = all_ranges_[in_range];
  if (range.indices.size() <= number) range.indices.resize(number + 1, kNone);
  std::uint32_t& index = range.indices[number];
  if (index == kNone) index = add_to_function(name, range.type);
  return Name{false, index};
}

std::uint32_t ScopedNames::find_range(std::string_view name, std::uint32_t& number) const {
  std::uint32_t found = kNone;
  std::size_t first_digit = name.size();
  while (first_digit > 1 && name.size() - first_digit < kMaxDigits && is_digit(name[first_digit - 1])) {
    --first_digit;
  }
  for (std::size_t i = first_digit; i < name.size(); ++i) {
    const bool has_zeros = name[i] == '0' && i + 1 < name.size();
    const ScopedMap::Entry* const entry = has_zeros ? nullptr : ranges_.find(name.substr(0, i));
    if (entry != nullptr) {
      std::uint32_t value = 0;
      std::from_chars(name.data() + i, name.data() + name.size(), value);
      std::uint32_t range = entry->value;
      while (range != kNone && value >= all_ranges_[range].num) range = all_ranges_[range].outer;
      if (range != kNone && (found == kNone || all_ranges_[range].depth > all_ranges_[found].depth)) {
        found = range;
        number = value;
      }
    }
    if (!has_digit_prefixes_) break;
  }
  return found;
}

std::uint32_t ScopedNames::add_to_function(std::string_view name, Type type) {
  function_.registers.push_back({name, type});
  return static_cast<std::uint32_t>(function_.registers.size() - 1);
}

void ScopedNames::open() {
  names_.open();
  ranges_.open();
}

void ScopedNames::close() {
  names_.close();
  ranges_.close();
}

bool LabelNames::add(std::string_view name, std::uint32_t instruction) {
  return places_.try_emplace({scope_, name}, instruction).second;
}

void LabelNames::refer(std::string_view name, std::uint32_t line, std::uint32_t instruction,
                       std::uint32_t operand) {
  references_.push_back({name, line, instruction, operand, scope_});
}

void LabelNames::open() {
  const auto scope = static_cast<std::uint32_t>(parents_.size());
  parents_.push_back(parents_.empty() ? 0 : scope_);
  scope_ = scope;
}

std::optional<std::uint32_t> LabelNames::find(const Reference& reference) const {
  for (std::uint32_t scope = reference.scope;; scope = parents_[scope]) {
    const auto place = places_.find({scope, reference.name});
    if (place != places_.end()) return place->second;
    if (scope == parents_[scope]) return std::nullopt;
  }
}

void LabelNames::mark(std::vector<bool>& is_label) const {
  for (const auto& [key, instruction] : places_) is_label[instruction] = true;
}

}  // namespace weightpress::ptxvm
