#include "job/column_sums.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weightpress::job {
namespace {

static_assert(std::endian::native == std::endian::little);

// A multiple of eight, and small enough for an even share.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
// So many sums of bytes do not leave 16 bits.
constexpr std::size_t kWordsOfRound = 256;

ColumnSums sum_piece(std::span<const std::uint8_t> bytes) {
  constexpr std::uint64_t kEvenBytes = 0x00FF00FF00FF00FF;
  ColumnSums sums{};
  const std::size_t num_words = bytes.size() / 8;
  for (std::size_t begin = 0; begin < num_words; begin += kWordsOfRound) {
    std::uint64_t even = 0, odd = 0;  // four sums of 16 bits each
    const std::size_t end = std::min(begin + kWordsOfRound, num_words);
    for (std::size_t i = begin; i < end; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + 8 * i, sizeof word);
      even += word & kEvenBytes;
      odd += word >> 8 & kEvenBytes;
    }
    for (std::size_t j = 0; j < 4; ++j) {
      sums[2 * j] += even >> (16 * j) & 0xFFFF;
      sums[2 * j + 1] += odd >> (16 * j) & 0xFFFF;
    }
  }
  for (std::size_t i = 8 * num_words; i < bytes.size(); ++i) sums[i % 8] += bytes[i];
  return sums;
}

}  // namespace

ColumnSums sum_columns(std::span<const std::uint8_t> bytes, int num_threads) {
  const std::size_t num_pieces = (bytes.size() + kPieceBytes - 1) / kPieceBytes;
  const int threads =
      static_cast<int>(std::clamp<std::size_t>(num_pieces / 2, 1, static_cast<std::size_t>(num_threads)));
  std::uint64_t totals[8] = {};
#pragma omp parallel for num_threads(threads) reduction(+ : totals)
  for (std::size_t piece = 0; piece < num_pieces; ++piece) {
    const std::size_t first = piece * kPieceBytes;
    const ColumnSums sums = sum_piece(bytes.subspan(first, std::min(kPieceBytes, bytes.size() - first)));
    for (std::size_t j = 0; j < sums.size(); ++j) totals[j] += sums[j];
  }
  return std::to_array(totals);
}

std::uint64_t lane_sum(const ColumnSums& sums, std::uint32_t num_lanes, std::uint32_t lane) {
  std::uint64_t sum = 0;
  for (std::size_t j = lane; j < sums.size(); j += num_lanes) sum += sums[j];
  return sum;
}

std::uint64_t element_sum(const ColumnSums& sums, std::uint32_t num_lanes) {
  std::uint64_t sum = 0;
  for (std::uint32_t lane = 0; lane < num_lanes; ++lane) sum += lane_sum(sums, num_lanes, lane) << (8 * lane);
  return sum;
}

}  // namespace weightpress::job
