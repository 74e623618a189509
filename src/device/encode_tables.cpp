#include "device/encode_tables.h"

namespace weightpress::device {

EncodeTables make_encode_tables(const df11::Codebook& codebook) {
  EncodeTables tables;
  for (std::uint32_t symbol = 0; symbol < df11::kNumSymbols; ++symbol) {
    const std::uint32_t length = codebook.lengths[symbol], code = codebook.codes[symbol];
    const bool is_fast = length != 0 && length <= EncodeTables::kMaxFastBits;
    tables.fast[symbol] = is_fast ? code << (32 - length) | length : EncodeTables::kSlow;
    tables.codes[symbol] = code;
    tables.lengths[symbol] = static_cast<std::uint8_t>(length);
  }
  return tables;
}

}  // namespace weightpress::device
