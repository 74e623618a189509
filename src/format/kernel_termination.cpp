#include "format/kernel_termination.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace weightpress::df11 {
namespace {

constexpr std::uint32_t kMaxLevels = kMaxCodeBits / 8;

/// The kernel adds others up modulo 256, and may then never get on.
constexpr bool is_code_length(std::uint32_t length) {
  return length != 0 && length <= kMaxCodeBits;
}

/// Decodes from bit `bit` of a window until its end; false if that never happens. `window` is followed by
/// zeros.
bool window_ends(std::span<const LookupRow> rows, std::uint64_t window, std::uint32_t bit) {
  const std::size_t num_tables = rows.size() - 1;
  while (bit < kWindowBits) {
    std::uint64_t ahead = window << bit;
    std::size_t table = 0;
    std::uint32_t value = 0;
    for (std::uint32_t level = 0; level < kMaxLevels; ++level) {
      value = rows[table][ahead >> (kWindowBits - 8)];
      if (value < kFirstPointer) break;
      table = 256 - value;
      if (table >= num_tables) return false;
      ahead <<= 8;
    }
    if (value >= kFirstPointer) return false;
    const std::uint32_t length = rows[num_tables][value];
    if (!is_code_length(length)) return false;
    bit += length;
  }
  return true;
}

}  // namespace

bool official_kernel_ends(std::span<const LookupRow> rows, const StreamEnd& end) {
  assert(rows.size() >= 2);
  std::uint64_t window = 0;
  for (const std::uint8_t byte : end.window) window = window << 8 | byte;

  const std::uint64_t num_bytes = end.total_bits / 8 + (end.total_bits % 8 != 0);
  const std::uint64_t num_chunks = num_bytes / kChunkBytes + (num_bytes % kChunkBytes != 0);
  const std::uint64_t launched_windows = num_chunks * kWindowsPerChunk;
  const std::uint64_t end_window = end.total_bits / kWindowBits;

  if (end_window < launched_windows) {
    // A stream that ends on a byte border leaves the gap of its last window at 0 when no weight starts there:
    // the kernel then decodes the rest of the last code as if it were a code.
    const bool starts_there = first_open_window(end.total_bits, end.last_code_length) > end_window;
    const bool from_zero = !starts_there && end.total_bits % 8 == 0;
    const std::uint32_t from = from_zero ? 0 : static_cast<std::uint32_t>(end.total_bits % kWindowBits);
    if (!window_ends(rows, window, from)) return false;
  }
  // Windows past the end: their gap is 0, their bits are 0.
  return end_window + 1 >= launched_windows || window_ends(rows, 0, 0);
}

bool tables_are_total(std::span<const LookupRow> rows) {
  if (rows.size() < 2 || rows.size() > kMaxTables + 1) return false;
  const std::size_t num_tables = rows.size() - 1;
  // total[table]: decoding ends from there with the levels that are left. At the last level only exponents
  // end it.
  std::array<bool, kMaxTables> total{};
  for (std::uint32_t level = kMaxLevels; level-- > 0;) {
    std::array<bool, kMaxTables> deeper = total;
    for (std::size_t table = 0; table < num_tables; ++table) {
      total[table] = std::all_of(rows[table].begin(), rows[table].end(), [&](std::uint32_t value) {
        if (value < kFirstPointer) return is_code_length(rows[num_tables][value]);
        const std::size_t next = 256 - value;
        return next < num_tables && deeper[next];
      });
    }
  }
  return total[0];
}

}  // namespace weightpress::df11
