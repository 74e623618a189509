// Text for people: sizes and rates; results on standard output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weightpress::cli {

/// "1.23 GB", decimal.
std::string format_bytes(std::uint64_t bytes);

/// "1.23 GB/s", decimal.
std::string format_rate(std::uint64_t bytes, double seconds);

/// Writes to standard output. Results that cannot be delivered are an error: see finish_output().
void print(const std::string& text);

/// False if something printed did not reach standard output (full disk, closed pipe).
bool finish_output();

}  // namespace weightpress::cli
