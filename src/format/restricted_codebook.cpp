#include "format/restricted_codebook.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <vector>

namespace weightpress::df11 {
namespace {

// Code space in units of one 16-bit code: a code of n bits takes 2^(16 - n). A head (first byte of long
// codes) is 256.
constexpr std::uint32_t kHeadUnits = 256;
constexpr std::uint32_t kMaxHeads = kMaxTables - 1;
constexpr std::uint32_t kShortBits = 8;
constexpr std::uint64_t kImpossible = std::numeric_limits<std::uint64_t>::max();

/// Least cost of giving `num_symbols` symbols codes of min_length..max_length bits within a budget of code
/// space.
///
/// Budgets and code sizes are in units of the longest code: 2^(max_length - n) for n bits. Symbols are added
/// one by one; cost(m, b) is for the first m of them within budget b, and choice(m, b) the length of the
/// m-th.
class KraftTable {
 public:
  KraftTable(const std::vector<std::uint64_t>& counts, std::uint32_t min_length, std::uint32_t max_length,
             std::uint32_t max_budget)
      : max_length_(max_length), width_(max_budget + 1) {
    cost_.assign((counts.size() + 1) * width_, kImpossible);
    choice_.assign((counts.size() + 1) * width_, 0);
    std::fill_n(cost_.begin(), width_, 0);
    for (std::size_t m = 1; m <= counts.size(); ++m) {
      for (std::uint32_t length = min_length; length <= max_length; ++length) {
        const std::uint32_t size = 1u << (max_length - length);
        for (std::uint32_t budget = size; budget < width_; ++budget) {
          const std::uint64_t before = cost_[(m - 1) * width_ + budget - size];
          if (before == kImpossible) continue;
          const std::uint64_t cost = before + counts[m - 1] * length;
          if (cost < cost_[m * width_ + budget]) {
            cost_[m * width_ + budget] = cost;
            choice_[m * width_ + budget] = static_cast<std::uint8_t>(length);
          }
        }
      }
    }
  }

  std::uint64_t cost(std::size_t num_symbols, std::uint32_t budget) const {
    return cost_[num_symbols * width_ + budget];
  }

  /// Lengths of the first num_symbols symbols at least cost.
  std::vector<std::uint8_t> lengths(std::size_t num_symbols, std::uint32_t budget) const {
    std::vector<std::uint8_t> lengths(num_symbols);
    for (std::size_t m = num_symbols; m > 0; --m) {
      lengths[m - 1] = choice_[m * width_ + budget];
      budget -= 1u << (max_length_ - lengths[m - 1]);
    }
    return lengths;
  }

 private:
  std::uint32_t max_length_;
  std::size_t width_;
  std::vector<std::uint64_t> cost_;
  std::vector<std::uint8_t> choice_;
};

}  // namespace

Codebook build_restricted_codebook(const Histogram& histogram, std::uint32_t min_length) {
  assert(min_length == 1 || min_length == 2);
  struct Symbol {
    int symbol;
    std::uint64_t count;
  };
  std::vector<Symbol> symbols{{kEofSymbol, 1}};
  for (std::uint32_t symbol = 0; symbol < kFirstPointer; ++symbol) {
    if (histogram[symbol] != 0) symbols.push_back({static_cast<int>(symbol), histogram[symbol]});
  }
  assert(symbols.size() > 1);
  std::sort(symbols.begin(), symbols.end(), [](const Symbol& a, const Symbol& b) {
    return a.count != b.count ? a.count > b.count : a.symbol < b.symbol;
  });

  // An optimal code gives no rarer symbol a shorter code, so the short codes go to the most frequent ones.
  std::vector<std::uint64_t> counts, reversed;
  for (const Symbol& symbol : symbols) counts.push_back(symbol.count);
  reversed.assign(counts.rbegin(), counts.rend());
  const KraftTable short_codes(counts, min_length, kShortBits, 1u << kShortBits);
  const KraftTable long_codes(reversed, kShortBits + 1, kMaxRestrictedBits, kMaxHeads * kHeadUnits);

  std::uint64_t best_cost = kImpossible;
  std::size_t best_short = 0;
  std::uint32_t best_heads = 0;
  for (std::size_t num_short = 0; num_short <= symbols.size(); ++num_short) {
    for (std::uint32_t heads = 0; heads <= kMaxHeads; ++heads) {
      const std::uint64_t a = short_codes.cost(num_short, (1u << kShortBits) - heads);
      const std::uint64_t b = long_codes.cost(symbols.size() - num_short, heads * kHeadUnits);
      if (a == kImpossible || b == kImpossible || a + b >= best_cost) continue;
      best_cost = a + b;
      best_short = num_short;
      best_heads = heads;
    }
  }
  // 241 symbols at most, so eight bits for each is always among the candidates.
  static_assert(kFirstPointer + 1 <= (1u << kShortBits));
  assert(best_cost != kImpossible);

  std::vector<std::uint8_t> lengths = short_codes.lengths(best_short, (1u << kShortBits) - best_heads);
  std::vector<std::uint8_t> long_lengths =
      long_codes.lengths(symbols.size() - best_short, best_heads * kHeadUnits);
  lengths.insert(lengths.end(), long_lengths.rbegin(), long_lengths.rend());

  std::vector<CodebookEntry> entries;
  entries.reserve(symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i) entries.push_back({symbols[i].symbol, lengths[i], 0});
  std::sort(entries.begin(), entries.end(), [](const CodebookEntry& a, const CodebookEntry& b) {
    return a.length != b.length ? a.length < b.length : a.symbol < b.symbol;
  });
  // Canonical: each code follows the one before it. Long codes come last and start at a border of 2^8 units
  // because every short code's size is a multiple of it, so they fill their heads one after the other.
  std::uint32_t next = 0;
  for (CodebookEntry& entry : entries) {
    entry.code = next >> (kMaxRestrictedBits - entry.length);
    next += 1u << (kMaxRestrictedBits - entry.length);
  }
  assert(next <= 1u << kMaxRestrictedBits);
  return make_codebook(std::move(entries));
}

}  // namespace weightpress::df11
