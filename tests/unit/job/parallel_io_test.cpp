#include "job/parallel_io.h"

#include <atomic>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weightpress::job
