#include "host/pair_codes.h"

#include <algorithm>

namespace weightpress::host {

void PairCodes::prepare(const df11::Codebook& codebook) {
  if (entries_ && lengths_ == codebook.lengths && codes_ == codebook.codes) return;
  if (!entries_) entries_ = std::make_unique_for_overwrite<Entry[]>(kNumEntries);
  lengths_ = codebook.lengths;
  codes_ = codebook.codes;
  std::fill_n(entries_.get(), kNumEntries, kEscape);
  for (std::uint32_t second = 0; second < df11::kNumSymbols; ++second) {
    const std::uint32_t second_length = lengths_[second];
    if (second_length == 0) continue;
    for (std::uint32_t first = 0; first < df11::kNumSymbols; ++first) {
      const std::uint32_t first_length = lengths_[first];
      const std::uint32_t length = first_length + second_length;
      if (first_length == 0 || length > kMaxPairBits) continue;
      const Entry code = Entry{codes_[first]} << second_length | codes_[second];
      entries_[first | second << 8] =
          Entry{length} << kLengthShift | code << kCodeShift | second_length << 8 | first_length;
    }
  }
}

}  // namespace weightpress::host
