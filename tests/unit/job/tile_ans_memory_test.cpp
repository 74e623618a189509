// The memory plan of a compression to Tile-ANS keeps the promise whatever is asked, and tells the smallest
// value that works.
#include "job/tile_ans_memory.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "job/parallel_io.h"
#include "job/size_option.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

constexpr std::uint64_t kKiB = 1 << 10, kMiB = kKiB << 10, kGiB = kMiB << 10;

/// Between 2^0 and 2^bits - 1; each length in bits is as likely.
std::uint64_t any_size(testing::Random& random, unsigned bits) {
  return (std::uint64_t{1} << random.below(bits)) + random.next() % (std::uint64_t{1} << random.below(bits));
}

TileAnsMemoryRequest any_request(testing::Random& random) {
  TileAnsMemoryRequest request;
  request.ram_bytes = any_size(random, 40);
  request.resident_bytes = any_size(random, 29);
  request.peak_bytes = request.resident_bytes + any_size(random, 29);
  request.lists_bytes = any_size(random, 26);
  request.num_threads = static_cast<int>(1 + random.below(std::uint64_t{1} << random.below(11)));
  request.least_slab_bytes = random.below(10) == 0 ? 0 : any_size(random, 36);
  request.most_slab_bytes = request.least_slab_bytes + (random.below(4) == 0 ? 0 : any_size(random, 38));
  return request;
}

/// The value that the message names; 0 if it names none.
std::uint64_t smallest_of(const Result<TileAnsMemoryPlan>& plan) {
  const std::string words = "the smallest value that works is --ram ";
  const std::string& message = plan.error().message;
  const std::size_t at = message.find(words);
  return at == message.npos ? 0 : parse_size(message.substr(at + words.size())).value_or(0);
}

Result<TileAnsMemoryPlan> plan_with(TileAnsMemoryRequest request, std::uint64_t ram_bytes) {
  request.ram_bytes = ram_bytes;
  return plan_tile_ans_memory(request);
}

/// A value may be meant in powers of 1000, and threads have at least the pieces that they read and write.
void expect_sound(const TileAnsMemoryRequest& request, const TileAnsMemoryPlan& plan) {
  EXPECT_LE(plan.needed_bytes, request.ram_bytes - request.ram_bytes / 14);
  EXPECT_GE(plan.needed_bytes, request.peak_bytes);
  EXPECT_GE(plan.needed_bytes, request.resident_bytes + request.lists_bytes + plan.slab_bytes +
                                   static_cast<std::uint64_t>(plan.num_threads) * 2 * kTransferPieceBytes);
  EXPECT_GE(plan.num_threads, 1);
  EXPECT_LE(plan.num_threads, request.num_threads);
  EXPECT_GE(plan.slab_bytes, request.least_slab_bytes);
  EXPECT_LE(plan.slab_bytes, request.most_slab_bytes);
  EXPECT_LE(plan.slab_bytes, std::max(512 * kMiB, request.least_slab_bytes));
}

TEST(TileAnsMemory, KeepsThePromiseOrNamesAValueThatWorks) {
  testing::Random random(1);
  int planned = 0, refused = 0;
  for (int round = 0; round < 100'000 && !HasFailure(); ++round) {
    const TileAnsMemoryRequest request = any_request(random);
    SCOPED_TRACE(round);
    if (const auto plan = plan_tile_ans_memory(request)) {
      ++planned;
      expect_sound(request, *plan);
      continue;
    } else {
      ++refused;
      EXPECT_EQ(plan.error().code, ErrorCode::kOutOfMemory);
      EXPECT_NE(plan.error().message.find("(" + std::to_string(request.ram_bytes) + " bytes)"),
                std::string::npos);
      const std::uint64_t smallest = smallest_of(plan);
      ASSERT_GT(smallest, request.ram_bytes) << plan.error().message;
      TileAnsMemoryRequest again = request;
      again.ram_bytes = smallest;
      const auto works = plan_tile_ans_memory(again);
      ASSERT_TRUE(works.has_value()) << works.error().message;
      expect_sound(again, *works);
      // What runs differ by is allowed for, and no more.
      const auto less = plan_with(request, smallest - 3 * kMiB);
      ASSERT_FALSE(less.has_value()) << smallest;
      EXPECT_EQ(smallest_of(less), smallest);
    }
  }
  EXPECT_GT(planned, 10'000);
  EXPECT_GT(refused, 10'000);
}

TEST(TileAnsMemory, ToTheByte) {
  testing::Random random(2);
  for (int round = 0; round < 2'000; ++round) {
    const TileAnsMemoryRequest request = any_request(random);
    // Where it begins to work, by halving.
    std::uint64_t fails = 0, works = std::uint64_t{1} << 50;
    while (works - fails > 1) {
      const std::uint64_t middle = fails + (works - fails) / 2;
      (plan_with(request, middle).has_value() ? works : fails) = middle;
    }
    const TileAnsMemoryPlan least = plan_with(request, works).value();
    EXPECT_TRUE(least.needed_bytes == request.peak_bytes ||
                (least.num_threads == 1 && least.slab_bytes == request.least_slab_bytes));
    // More memory is never worse.
    TileAnsMemoryPlan before = least;
    for (std::uint64_t ram_bytes = works; ram_bytes < 8 * works; ram_bytes += 1 + works / 7) {
      const TileAnsMemoryPlan plan = plan_with(request, ram_bytes).value();
      EXPECT_GE(plan.num_threads, before.num_threads);
      if (plan.num_threads == before.num_threads) {
        EXPECT_GE(plan.slab_bytes, before.slab_bytes);
      }
      before = plan;
    }
  }
}

TEST(TileAnsMemory, SlabsGrowWithThreadsAndStopThere) {
  TileAnsMemoryRequest request;
  request.ram_bytes = 64 * kGiB;
  request.resident_bytes = 20 * kMiB;
  request.peak_bytes = 25 * kMiB;
  request.least_slab_bytes = kMiB;
  request.most_slab_bytes = 10 * kGiB;
  for (const auto& [threads, slab_bytes] :
       {std::pair{1, 64 * kMiB}, {4, 64 * kMiB}, {8, 128 * kMiB}, {64, 512 * kMiB}}) {
    request.num_threads = threads;
    EXPECT_EQ(plan_tile_ans_memory(request).value().slab_bytes, slab_bytes);
  }
  request.least_slab_bytes = 3 * kGiB;  // a tile that is larger
  EXPECT_EQ(plan_tile_ans_memory(request).value().slab_bytes, 3 * kGiB);
  request.least_slab_bytes = kMiB;
  request.most_slab_bytes = 2 * kMiB;  // there is nothing larger
  EXPECT_EQ(plan_tile_ans_memory(request).value().slab_bytes, 2 * kMiB);
}

}  // namespace
}  // namespace weightpress::job
