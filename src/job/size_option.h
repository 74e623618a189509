// SIZE, as --ram takes it and as messages name one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weightpress::job {

/// Bytes of "512M", "1.5G", "4 GiB", "300000000": digits, with a fraction if need be, and at most one blank
/// before K, M, G or T, in any case, alone or with B or iB. All four are powers of 1024, with B too. A
/// fraction of a byte is dropped. Nothing for any other text, and for sizes that are 0 or do not fit 64 bits.
/// "8B" is not a size: it is how people write eight billion weights.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// The shortest text that parse_size() reads as `bytes` rounded up to whole MiB: "129M" for 128 MiB and a
/// byte, "2G" for 2 GiB, "1M" for 0. Never less than `bytes`; so within a MiB of 2^64, where rounding up
/// would not fit, all digits.
std::string format_size(std::uint64_t bytes);

}  // namespace weightpress::job
