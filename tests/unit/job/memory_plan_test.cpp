// The memory plan keeps the promise whatever is asked, gives up speed in a fixed order, and tells the
// smallest value that works.
#include "job/memory_plan.h"

#include <algorithm>
#include <bit>
#include <vector>

#include <gtest/gtest.h>

#include "format/histogram.h"
#include "job/size_option.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

constexpr std::uint64_t kKiB = 1 << 10, kMiB = kKiB << 10, kGiB = kMiB << 10;
constexpr std::uint64_t kHugePageBytes = 2 * kMiB;

/// Between 2^0 and 2^bits - 1; each length in bits is as likely.
std::uint64_t any_size(testing::Random& random, unsigned bits) {
  return (std::uint64_t{1} << random.below(bits)) + random.next() % (std::uint64_t{1} << random.below(bits));
}

MemoryRequest any_request(testing::Random& random) {
  MemoryRequest request;
  request.ram_bytes = any_size(random, 41);
  request.resident_bytes = any_size(random, 29);
  request.peak_bytes = request.resident_bytes + any_size(random, 27);
  request.lists_bytes = any_size(random, 26);
  request.num_threads = static_cast<int>(1 + random.below(std::uint64_t{1} << random.below(11)));
  request.longest_unit_weights = std::min<std::uint64_t>(any_size(random, 32), 0xFFFF'FFFF);
  if (random.below(10) == 0) request.longest_unit_weights = random.below(3);
  request.holds_many_units = random.below(2) == 0;
  request.held_weights = request.longest_unit_weights;
  if (request.holds_many_units) request.held_weights *= 1 + random.below(500);
  if (random.below(4) == 0) request.held_weights = any_size(random, 38);
  request.decodes = random.below(2) == 0;
  return request;
}

std::string text_of(const MemoryRequest& r) {
  return "ram " + std::to_string(r.ram_bytes) + ", peak " + std::to_string(r.peak_bytes) + ", resident " +
         std::to_string(r.resident_bytes) + ", lists " + std::to_string(r.lists_bytes) + ", threads " +
         std::to_string(r.num_threads) + ", longest " + std::to_string(r.longest_unit_weights) + ", held " +
         std::to_string(r.held_weights) + (r.holds_many_units ? ", many" : "") +
         (r.decodes ? ", decodes" : "");
}

/// The value that the message names; 0 if it names none.
std::uint64_t smallest_of(const Result<MemoryPlan>& plan) {
  const std::string words = "the smallest value that works is --ram ";
  const std::string& message = plan.error().message;
  const std::size_t at = message.find(words);
  return at == message.npos ? 0 : parse_size(message.substr(at + words.size())).value_or(0);
}

Result<MemoryPlan> plan_with(MemoryRequest request, std::uint64_t ram_bytes) {
  request.ram_bytes = ram_bytes;
  return plan_memory(request);
}

void expect_sound(const MemoryRequest& request, const MemoryPlan& plan) {
  EXPECT_EQ(plan.ram_bytes, request.ram_bytes);
  EXPECT_LE(plan.needed_bytes, plan.ram_bytes);
  EXPECT_LE(plan.held_bytes, plan.ram_bytes - plan.needed_bytes);
  EXPECT_LE(plan.histogram_bytes, plan.ram_bytes - plan.needed_bytes - plan.held_bytes);
  EXPECT_GE(plan.needed_bytes, request.peak_bytes);
  const std::uint64_t segment = df11::segment_weights_for(request.longest_unit_weights);
  const std::uint64_t segments = df11::num_segments(request.longest_unit_weights, segment);
  // By the words of the header files: a thread has at least its two pieces, a weight of a slab four bytes.
  EXPECT_GE(plan.needed_bytes, request.resident_bytes + request.lists_bytes + segments * kKiB +
                                   static_cast<std::uint64_t>(plan.num_threads) * kMiB +
                                   4 * plan.slab_weights +
                                   (request.decodes ? plan.slab_chunks * 96 * kKiB : 0));
  EXPECT_GE(plan.num_threads, 1);
  EXPECT_LE(plan.num_threads, request.num_threads);
  EXPECT_GE(plan.slab_weights, segment);
  EXPECT_EQ(plan.slab_weights % segment, 0u);
  EXPECT_LE(plan.slab_weights, std::max<std::uint64_t>(segments, 1) * segment);
  EXPECT_LE(plan.slab_weights, 64 * kMiB);
  EXPECT_GE(plan.slab_chunks, 8u);
  EXPECT_LE(plan.slab_chunks, 256u);
  EXPECT_EQ(plan.held_bytes % kHugePageBytes, 0u);
  EXPECT_LE(plan.held_bytes, 2 * request.held_weights + kHugePageBytes);
  if (!request.holds_many_units) {
    EXPECT_EQ(plan.histogram_bytes, 0u);
  }
}

TEST(MemoryPlan, KeepsThePromiseOrNamesAValueThatWorks) {
  testing::Random random(17);
  int planned = 0, refused = 0;
  for (int round = 0; round < 200'000 && !HasFailure(); ++round) {
    const MemoryRequest request = any_request(random);
    SCOPED_TRACE(text_of(request));
    if (const auto plan = plan_memory(request)) {
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
      MemoryRequest again = request;
      again.ram_bytes = smallest;
      const auto works = plan_memory(again);
      ASSERT_TRUE(works.has_value()) << works.error().message;
      expect_sound(again, *works);
      // What runs differ by is allowed for, and no more.
      const auto less = plan_with(request, smallest - 4 * kMiB);
      ASSERT_FALSE(less.has_value()) << smallest;
      EXPECT_EQ(smallest_of(less), smallest);
    }
  }
  EXPECT_GT(planned, 20'000);
  EXPECT_GT(refused, 20'000);
}

TEST(MemoryPlan, AValueThatWorksStillWorksWhenTheNextRunIsALittleLarger) {
  testing::Random random(18);
  for (int round = 0; round < 20'000; ++round) {
    MemoryRequest request = any_request(random);
    request.ram_bytes = 1;
    request.ram_bytes = smallest_of(plan_memory(request));
    request.peak_bytes += random.below(700 * kKiB);
    request.resident_bytes += random.below(700 * kKiB);
    EXPECT_TRUE(plan_memory(request).has_value()) << text_of(request);
  }
}

TEST(MemoryPlan, MoreMemoryIsNeverWorse) {
  testing::Random random(19);
  for (int round = 0; round < 3'000 && !HasFailure(); ++round) {
    const MemoryRequest request = any_request(random);
    SCOPED_TRACE(text_of(request));
    const std::uint64_t smallest = smallest_of(plan_with(request, 1));
    std::vector<std::uint64_t> values;
    for (int i = 0; i < 40; ++i) values.push_back(smallest + any_size(random, 38));
    std::ranges::sort(values);
    MemoryPlan before = plan_with(request, smallest).value();
    for (const std::uint64_t ram_bytes : values) {
      const auto plan = plan_with(request, ram_bytes);
      ASSERT_TRUE(plan.has_value()) << ram_bytes;
      EXPECT_GE(plan->num_threads, before.num_threads) << ram_bytes;
      EXPECT_GE(plan->slab_weights, before.slab_weights) << ram_bytes;
      EXPECT_GE(plan->slab_chunks, before.slab_chunks) << ram_bytes;
      // Larger slabs may take from what is held, but all together does not shrink (but for a huge page).
      EXPECT_GE(plan->needed_bytes + plan->held_bytes + plan->histogram_bytes + kHugePageBytes,
                before.needed_bytes + before.held_bytes + before.histogram_bytes)
          << ram_bytes;
      if (plan->needed_bytes == before.needed_bytes) {
        EXPECT_GE(plan->held_bytes, before.held_bytes) << ram_bytes;
        EXPECT_GE(plan->histogram_bytes, before.histogram_bytes) << ram_bytes;
      }
      before = *plan;
    }
  }
}

TEST(MemoryPlan, GivesUpBuffersFirstThenThreads) {
  MemoryRequest request;
  request.ram_bytes = 64 * kGiB;
  request.resident_bytes = 20 * kMiB;
  request.peak_bytes = 25 * kMiB;
  request.num_threads = 64;
  request.longest_unit_weights = 400'000'000;
  request.held_weights = request.longest_unit_weights;
  request.decodes = true;
  const MemoryPlan most = plan_memory(request).value();
  EXPECT_EQ(most.num_threads, 64);
  EXPECT_EQ(most.slab_weights, 32 * kMiB);
  EXPECT_EQ(most.slab_chunks, 256u);
  EXPECT_GE(most.held_bytes, 800'000'000u);
  bool had_fewer_threads = false;
  const std::uint64_t smallest = smallest_of(plan_with(request, 1));
  for (std::uint64_t ram_bytes = smallest; ram_bytes < 2 * kGiB; ram_bytes += kMiB) {
    const MemoryPlan plan = plan_with(request, ram_bytes).value();
    if (plan.num_threads == 64) continue;
    had_fewer_threads = true;
    EXPECT_EQ(plan.slab_chunks, 8u);
    EXPECT_LE(plan.slab_weights, 64 * 4 * 65'536u);
  }
  EXPECT_TRUE(had_fewer_threads);
  const MemoryPlan least = plan_with(request, smallest).value();
  EXPECT_EQ(least.num_threads, 1);
  EXPECT_LE(least.slab_weights, 4 * 65'536u);  // what runs may differ by is enough for some
  EXPECT_EQ(least.slab_chunks, 8u);
  EXPECT_LT(smallest, 64 * kMiB);
}

TEST(MemoryPlan, AThousandThreads) {
  MemoryRequest request;
  request.num_threads = 1'024;
  request.longest_unit_weights = 100'000'000;
  request.held_weights = request.longest_unit_weights;
  request.decodes = true;
  for (int shift = 0; shift < 41; ++shift) {
    request.ram_bytes = std::uint64_t{1} << shift;
    const auto plan = plan_memory(request);
    if (request.ram_bytes >= 128 * kMiB) {
      ASSERT_TRUE(plan.has_value());
      expect_sound(request, *plan);
    }
    if (request.ram_bytes >= 4 * kGiB) {
      EXPECT_EQ(plan->num_threads, 1'024);
    }
  }
}

TEST(MemoryPlan, APromiseOf128MbIsEnoughForThePeersHardestModels) {
  // docs/design.md: from 128 MB on, for any model whose headers fit; also as some tools count, by thousands.
  for (const std::uint64_t ram_bytes : {128'000'000u, 128u << 20}) {
    for (const std::uint64_t weights : {std::uint64_t{1}, std::uint64_t{100'000'000},
                                        std::uint64_t{600'000'000}, (std::uint64_t{1} << 31) - 4'097}) {
      for (const bool decodes : {false, true}) {
        MemoryRequest request;
        request.ram_bytes = ram_bytes;
        request.peak_bytes = 24 * kMiB;
        request.resident_bytes = 20 * kMiB;
        request.lists_bytes = 10 * kMiB;
        request.num_threads = 16;
        request.longest_unit_weights = weights;
        request.held_weights = weights;
        request.decodes = decodes;
        const auto plan = plan_memory(request);
        ASSERT_TRUE(plan.has_value()) << weights << ": " << plan.error().message;
        expect_sound(request, *plan);
        EXPECT_GE(plan->num_threads, 8);
        // A fourteenth is left for the other meaning of "M".
        EXPECT_LE(plan->needed_bytes + plan->held_bytes, ram_bytes / 14 * 13 + 14);
      }
    }
  }
}

TEST(MemoryPlan, TinyUnitsTakeTinySlabs) {
  for (const std::uint64_t weights : {0u, 1u, 100u, 65'535u, 65'536u}) {
    MemoryRequest request;
    request.ram_bytes = kGiB;
    request.num_threads = 4;
    request.longest_unit_weights = weights;
    request.held_weights = weights;
    const MemoryPlan plan = plan_memory(request).value();
    expect_sound(request, plan);
    EXPECT_EQ(plan.slab_weights, 65'536u);
    EXPECT_EQ(plan.num_threads, 4);
    EXPECT_LT(plan.needed_bytes, 32 * kMiB);
    EXPECT_GE(plan.held_bytes, 2 * weights);
  }
}

TEST(MemoryPlan, HistogramsOfTheLongestUnitAreCounted) {
  MemoryRequest request;
  request.ram_bytes = kGiB;
  request.num_threads = 4;
  request.longest_unit_weights = 8 * kMiB;
  const MemoryPlan small = plan_memory(request).value();
  request.longest_unit_weights = 512 * kMiB;
  const MemoryPlan large = plan_memory(request).value();
  ASSERT_EQ(small.slab_weights, large.slab_weights);
  EXPECT_EQ(large.needed_bytes - small.needed_bytes, (512 - 8) * kMiB / 65'536 * kKiB);
}

TEST(MemoryPlan, HoldsWhatIsOfUseAndNoMore) {
  MemoryRequest request;
  request.ram_bytes = 8 * kGiB;
  request.num_threads = 2;
  request.longest_unit_weights = 50'000'000;
  request.held_weights = 1'000'000'000;
  request.holds_many_units = true;
  const MemoryPlan plan = plan_memory(request).value();
  EXPECT_GE(plan.held_bytes, 2'000'000'000u);
  EXPECT_LE(plan.held_bytes, 2'000'000'000u + kHugePageBytes);
  EXPECT_GE(plan.histogram_bytes, 1'000'000'000 / 65'536 * kKiB);
  EXPECT_LE(plan.histogram_bytes, 2'000'000'000u / 100);
  request.held_weights = 0;
  EXPECT_LE(plan_memory(request)->held_bytes, kHugePageBytes);
  // Too little for all: histograms get at most half of what is left.
  request.held_weights = 100'000'000'000;
  request.ram_bytes = 400 * kMiB;
  const MemoryPlan tight = plan_memory(request).value();
  expect_sound(request, tight);
  EXPECT_GT(tight.histogram_bytes, 0u);
  EXPECT_LE(tight.histogram_bytes, tight.held_bytes + kHugePageBytes);
}

TEST(MemoryPlan, TheEndsOfTheNumbers) {
  testing::Random random(20);
  for (int round = 0; round < 2'000 && !HasFailure(); ++round) {
    MemoryRequest request = any_request(random);
    SCOPED_TRACE(text_of(request));
    for (const std::uint64_t ram_bytes :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{13}, std::uint64_t{14}, std::uint64_t{1} << 40,
          std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
      const auto plan = plan_with(request, ram_bytes);
      EXPECT_EQ(plan.has_value(), ram_bytes >= std::uint64_t{1} << 40);
      request.ram_bytes = ram_bytes;
      if (plan) expect_sound(request, *plan);
    }
  }
  // A process that holds more than there is.
  MemoryRequest request;
  request.peak_bytes = std::uint64_t{1} << 50;
  request.ram_bytes = kGiB;
  const auto plan = plan_memory(request);
  ASSERT_FALSE(plan.has_value());
  EXPECT_TRUE(plan_with(request, smallest_of(plan)).has_value());
}

}  // namespace
}  // namespace weightpress::job
