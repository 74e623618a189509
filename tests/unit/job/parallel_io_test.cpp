#include "job/parallel_io.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/weights.h"

namespace weightpress::job {
namespace {

TEST(TransferInPieces, CoversEveryByteOnce) {
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1}, kTransferPieceBytes - 1, kTransferPieceBytes,
        kTransferPieceBytes + 1, 9 * kTransferPieceBytes / 2 + 1}) {
    for (const int threads : {1, 2, 3, 7}) {
      std::vector<std::uint8_t> touched(bytes, 0);
      transfer_in_pieces(bytes, threads, [&](std::uint64_t offset, std::uint64_t count) {
        for (std::uint64_t i = offset; i < offset + count; ++i) ++touched[i];
      });
      for (const std::uint8_t count : touched)
        ASSERT_EQ(count, 1) << bytes << " bytes, " << threads << " threads";
    }
  }
}

TEST(TransferInPieces, ExceptionsOfAnyThreadArriveOnce) {
  std::atomic<int> calls = 0;
  const auto fail = [&](std::uint64_t offset, std::uint64_t) {
    ++calls;
    if (offset != 0) throw std::runtime_error("no space");
  };
  EXPECT_THROW(transfer_in_pieces(10 * kTransferPieceBytes, 3, fail), std::runtime_error);
  EXPECT_EQ(calls, 10);  // the others were not torn off
}

using Pieces = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // begin and end, in order

Pieces pieces_of(std::uint64_t first, std::uint64_t end, int threads) {
  Pieces pieces;
  std::mutex mutex;
  transfer_on_grid(first, end, threads, [&](std::uint64_t offset, std::uint64_t bytes) {
    const std::lock_guard lock(mutex);
    pieces.emplace_back(offset, offset + bytes);
  });
  std::ranges::sort(pieces);
  return pieces;
}

TEST(TransferOnGrid, PiecesAreCutAtTheGrid) {
  constexpr std::uint64_t kPiece = kTransferPieceBytes;
  EXPECT_EQ(pieces_of(0, 2 * kPiece, 2), (Pieces{{0, kPiece}, {kPiece, 2 * kPiece}}));
  EXPECT_EQ(pieces_of(1, kPiece - 1, 2), (Pieces{{1, kPiece - 1}}));
  EXPECT_EQ(pieces_of(kPiece - 1, kPiece + 1, 2), (Pieces{{kPiece - 1, kPiece}, {kPiece, kPiece + 1}}));
  EXPECT_EQ(pieces_of(kPiece, kPiece + 1, 2), (Pieces{{kPiece, kPiece + 1}}));
  EXPECT_EQ(pieces_of(kPiece - 1, kPiece, 2), (Pieces{{kPiece - 1, kPiece}}));
  testing::Random random(23);
  for (int round = 0; round < 500; ++round) {
    // Near the grid and anywhere, also far beyond 32 bits.
    const std::uint64_t base = random.below(2) == 0 ? 0 : random.below(std::uint64_t{1} << 62);
    const auto any = [&](std::uint64_t from) {
      const std::uint64_t odd = random.below(2) == 0 ? random.below(kPiece) : random.below(5);
      return (from / kPiece + random.below(9)) * kPiece + odd;
    };
    const std::uint64_t first = any(base), end = std::max(first, any(first));
    const int threads = 1 + static_cast<int>(random.below(5));
    const Pieces pieces = pieces_of(first, end, threads);
    SCOPED_TRACE(std::to_string(first) + " to " + std::to_string(end));
    if (first == end) {
      for (const auto& [from, to] : pieces) EXPECT_EQ(from, to);
      continue;
    }
    ASSERT_FALSE(pieces.empty());
    EXPECT_EQ(pieces.front().first, first);
    EXPECT_EQ(pieces.back().second, end);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_LT(pieces[i].first, pieces[i].second);
      EXPECT_EQ(pieces[i].first / kPiece, (pieces[i].second - 1) / kPiece);  // in one block
      if (i == 0) continue;
      EXPECT_EQ(pieces[i].first, pieces[i - 1].second);
      EXPECT_EQ(pieces[i].first % kPiece, 0u);
    }
    EXPECT_EQ(pieces, pieces_of(first, end, 1));
  }
}

TEST(TransferOnGrid, EmptyRangesTransferNothing) {
  for (const std::uint64_t at :
       {std::uint64_t{0}, std::uint64_t{1}, kTransferPieceBytes - 1, kTransferPieceBytes,
        kTransferPieceBytes + 1, 7 * kTransferPieceBytes, std::uint64_t{1} << 62}) {
    for (const auto& [from, to] : pieces_of(at, at, 3)) {
      EXPECT_EQ(from, at);
      EXPECT_EQ(to, at);
    }
  }
}

TEST(TransferOnGrid, ExceptionsOfAnyPieceArrive) {
  for (std::uint64_t bad = 0; bad < 4; ++bad) {
    for (const int threads : {1, 2, 4}) {
      std::atomic<int> calls = 0;
      EXPECT_THROW(transfer_on_grid(100, 4 * kTransferPieceBytes - 100, threads,
                                    [&](std::uint64_t offset, std::uint64_t) {
                                      ++calls;
                                      if (offset / kTransferPieceBytes == bad)
                                        throw std::runtime_error("bad");
                                    }),
                   std::runtime_error);
      EXPECT_EQ(calls, 4);
    }
  }
  EXPECT_THROW(
      transfer_on_grid(5, 6, 4, [](std::uint64_t, std::uint64_t) { throw std::runtime_error("bad"); }),
      std::runtime_error);
}

}  // namespace
}  // namespace weightpress::job
