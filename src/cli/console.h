// Text for people: sizes and rates; results on standard output, notes on standard error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weightpress::cli {

/// "1.23 GB", decimal.
std::string format_bytes(std::uint64_t bytes);

/// "1.23 GB/s", decimal.
std::string format_rate(std::uint64_t bytes, double seconds);

/// "70.12%"; "0.00%" of nothing.
std::string percent(std::uint64_t part, std::uint64_t whole);

/// Writes to standard output. Results that cannot be delivered are an error: see finish_output().
void print(const std::string& text);

/// A line on standard error that begins with "note: ".
void note(const std::string& text);

/// Notes the first few of many, and how many there are besides.
template <class Items, class Text>
void note_each(const Items& items, const std::string& what, Text text) {
  constexpr std::size_t kMaxShown = 20;
  for (std::size_t i = 0; i < items.size() && i < kMaxShown; ++i) note(text(items[i]));
  if (items.size() > kMaxShown) note("and " + std::to_string(items.size() - kMaxShown) + " more " + what);
}

/// False if something printed did not reach standard output (full disk, closed pipe).
bool finish_output();

}  // namespace weightpress::cli
