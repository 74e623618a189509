// How a pipeline shares a GPU's memory out: what it plans is added up here again, from what each part holds,
// for units of all sizes in memory of all sizes.
#include "device/pipeline_memory.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "device/gpu_stages.h"
#include "support/weights.h"

namespace weightpress::device {
namespace {

constexpr std::uint64_t kSegment = kGpuSegmentWeights;
constexpr std::uint64_t kLongest = std::uint64_t{1} << 31;

std::uint64_t segments_of(std::uint64_t num_weights) {
  return num_weights / kSegment + (num_weights % kSegment != 0 ? 1 : 0);
}

/// Weights, and 256 counts of 32 bits a segment.
std::uint64_t counted(std::uint64_t num_weights) {
  return 2 * num_weights + 1024 * segments_of(num_weights);
}

/// sign_mantissa, codes of a byte each, gaps (5 bytes for 64) and positions (4 bytes for 4,096) of these;
/// with 2 bytes for what the official kernel decodes.
std::uint64_t encoded(std::uint64_t num_weights, bool has_outputs) {
  return (has_outputs ? 4 : 2) * num_weights + (num_weights * 5 + 63) / 64 + num_weights / 1024;
}

/// All that the plan means: units that are held whole, or, if that is more, a long one in slabs.
std::uint64_t needed_bytes(const PipelineMemory& plan, const PipelineMemoryRequest& request) {
  const std::uint64_t resident = plan.num_slots * counted(plan.resident_weights) +
                                 plan.num_encodings * encoded(plan.resident_weights, request.has_outputs);
  if (plan.num_slabs == 0) return resident;
  // The longest unit's histograms and first bits stay, for each slab weights and what is made of them.
  const std::uint64_t streamed =
      segments_of(request.longest_unit_weights) * 1024 + (segments_of(request.longest_unit_weights) + 1) * 8 +
      plan.num_slabs * (2 * plan.slab_weights + encoded(plan.slab_weights, request.has_outputs));
  return std::max(resident, streamed);
}

/// The least memory for a long unit, without slack: a slab of three segments.
std::uint64_t least_bytes(const PipelineMemoryRequest& request) {
  return segments_of(request.longest_unit_weights) * (1024 + 8) + 2 * 3 * kSegment +
         encoded(3 * kSegment, request.has_outputs);
}

void check(const PipelineMemoryRequest& request) {
  SCOPED_TRACE(::testing::Message() << request.longest_unit_weights << " weights, " << request.usable_bytes
                                    << " bytes, " << request.most_slots << " slots"
                                    << (request.has_outputs ? ", outputs" : ""));
  constexpr std::uint64_t kSlack = std::uint64_t{64} << 10;  // of each part
  const std::uint64_t longest = request.longest_unit_weights, usable = request.usable_bytes;
  const auto plan = plan_pipeline_memory(request);
  const std::uint64_t whole = counted(longest) + encoded(longest, request.has_outputs);
  if (!plan) {
    // There is too little, and not for want of trying: a tenth more than the bare need would do.
    EXPECT_LT(usable, least_bytes(request) * 11 / 10 + 2 * kSlack);
    EXPECT_LT(usable, whole * 11 / 10 + 2 * kSlack);
    return;
  }
  ASSERT_LE(needed_bytes(*plan, request), usable);
  ASSERT_LE(plan->num_slots, std::max<std::uint64_t>(request.most_slots, 1));
  ASSERT_LE(plan->num_encodings, 2u);
  ASSERT_EQ(plan->num_slots == 0, plan->resident_weights == 0);
  ASSERT_EQ(plan->num_slots == 0, plan->num_encodings == 0);
  ASSERT_LE(plan->resident_weights, longest);
  if (plan->resident_weights == longest) {
    ASSERT_EQ(plan->num_slabs, 0u);
    ASSERT_EQ(plan->slab_weights, 0u);
    // One more of each would not have fit.
    if (plan->num_slots < request.most_slots) {
      EXPECT_GT((plan->num_slots + 1) * counted(longest) +
                    plan->num_encodings * (encoded(longest, request.has_outputs) * 11 / 10 + 2 * kSlack),
                usable);
    }
    if (plan->num_encodings < 2) {
      EXPECT_GT(counted(longest) + 2 * (encoded(longest, request.has_outputs) * 11 / 10 + 2 * kSlack),
                usable);
    }
    return;
  }
  EXPECT_LT(usable, whole * 11 / 10 + 2 * kSlack);
  ASSERT_EQ(plan->resident_weights % kSegment, 0u);
  ASSERT_GE(plan->num_slabs, 1u);
  ASSERT_LE(plan->num_slabs, 3u);
  ASSERT_EQ(plan->slab_weights % kSegment, 0u);
  ASSERT_GE(plan->slab_weights, 3 * kSegment);
  // Long units do not become a few huge slabs, where nothing overlaps.
  EXPECT_LE(plan->slab_weights, std::max<std::uint64_t>(std::uint64_t{8} << 20, longest / 16));
  if (plan->num_slabs < 3) {
    EXPECT_LT(usable, segments_of(longest) * 1032 +
                          (plan->num_slabs + 1) * (2 * 3 * kSegment + kSlack +
                                                   encoded(3 * kSegment, request.has_outputs) * 11 / 10) +
                          2 * kSlack);
  }
}

/// Sizes of a kind each: borders of segments, powers of two, anything.
std::uint64_t random_size(testing::Random& random, std::uint64_t most) {
  std::uint64_t size = 0;
  switch (random.below(4)) {
    case 0:
      size = random.below(most / kSegment + 1) * kSegment + random.below(5) - 2;
      break;
    case 1:
      size = (std::uint64_t{1} << random.below(42)) + random.below(5) - 2;
      break;
    case 2:
      size = random.next() >> random.below(64);
      break;
    default:
      size = random.below(most + 1);
  }
  return std::min(size, most);  // what is below 0 is large
}

TEST(PipelineMemory, NeverPlansMoreThanThereIsAndUsesWhatThereIs) {
  testing::Random random(1);
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t longest = std::max<std::uint64_t>(random_size(random, kLongest), 1);
    // Mostly about as much as such a unit takes, where it is decided.
    const std::uint64_t whole = counted(longest) + encoded(longest, true);
    const std::uint64_t usable = random.below(4) == 0
                                     ? random_size(random, std::uint64_t{1} << 40)
                                     : random.below(random.below(2) == 0 ? 4 * whole : whole);
    check({longest, usable, 1 + random.below(random.below(2) == 0 ? 3 : 100), random.below(2) == 0});
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

std::optional<PipelineMemory> plan_of(std::uint64_t longest, std::uint64_t usable, bool outputs = false,
                                      std::uint64_t most_slots = 3) {
  return plan_pipeline_memory({longest, usable, most_slots, outputs});
}

/// The least memory for which `holds`, which must hold from there on.
template <class Holds>
std::uint64_t least_usable(std::uint64_t most, Holds holds) {
  std::uint64_t below = 0, above = most;
  while (below + 1 < above) {
    const std::uint64_t middle = below + (above - below) / 2;
    (holds(middle) ? above : below) = middle;
  }
  return above;
}

TEST(PipelineMemory, EveryBorderIsWhereTheSumIsReached) {
  for (const bool outputs : {false, true}) {
    for (const std::uint64_t longest : {std::uint64_t{1}, kSegment - 1, kSegment, 3 * kSegment + 1,
                                        40 * kSegment, std::uint64_t{5'000'000}, kLongest - 4097}) {
      const std::uint64_t most = 8 * (counted(longest) + encoding_bytes(longest, outputs));
      for (std::uint64_t slots = 1; slots <= 3; ++slots) {
        const std::uint64_t border = least_usable(most, [&](std::uint64_t usable) {
          const auto plan = plan_of(longest, usable, outputs);
          return plan && plan->resident_weights == longest && plan->num_encodings == 2 &&
                 plan->num_slots >= slots;
        });
        EXPECT_EQ(border, slots * slot_bytes(longest) + 2 * encoding_bytes(longest, outputs));
      }
      const std::uint64_t alone = least_usable(most, [&](std::uint64_t usable) {
        const auto plan = plan_of(longest, usable, outputs);
        return plan && plan->resident_weights == longest;
      });
      EXPECT_EQ(alone, slot_bytes(longest) + encoding_bytes(longest, outputs));
      for (std::uint64_t step = 0; step < 2'000; ++step) check({longest, alone - 1'000 + step, 3, outputs});
    }
  }
}

TEST(PipelineMemory, WhatAUnitTakesIsEnoughForWhatIsThere) {
  testing::Random random(2);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t weights = std::max<std::uint64_t>(random_size(random, kLongest), 1);
    EXPECT_EQ(slot_bytes(weights), counted(weights));
    for (const bool outputs : {false, true}) {
      EXPECT_GE(encoding_bytes(weights, outputs), encoded(weights, outputs));
      // Not by so much that units which fit go through in slabs.
      EXPECT_LE(encoding_bytes(weights, outputs), encoded(weights, outputs) * 11 / 10 + (128 << 10));
    }
    EXPECT_EQ(encoding_bytes(weights, true) - encoding_bytes(weights, false), 2 * weights);
  }
}

TEST(PipelineMemory, MoreMemoryIsNeverWorse) {
  testing::Random random(3);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t longest = std::max<std::uint64_t>(random_size(random, kLongest), 1);
    const bool outputs = random.below(2) == 0;
    const std::uint64_t usable = random.below(4 * (counted(longest) + encoded(longest, outputs)));
    const std::uint64_t more = usable + random_size(random, usable);
    const auto less_plan = plan_of(longest, usable, outputs), plan = plan_of(longest, more, outputs);
    SCOPED_TRACE(::testing::Message() << longest << " weights, " << usable << " and " << more << " bytes");
    ASSERT_LE(less_plan.has_value(), plan.has_value());
    if (!less_plan) continue;
    ASSERT_LE(less_plan->resident_weights, plan->resident_weights);
    if (plan->resident_weights < longest) {
      ASSERT_LE(less_plan->num_slabs, plan->num_slabs);
      ASSERT_LE(less_plan->num_slots, plan->num_slots);
      if (less_plan->num_slabs == plan->num_slabs) {
        ASSERT_LE(less_plan->slab_weights, plan->slab_weights);
      }
    } else if (less_plan->resident_weights == longest) {
      ASSERT_LE(less_plan->num_encodings, plan->num_encodings);
      if (less_plan->num_encodings == plan->num_encodings) {
        ASSERT_LE(less_plan->num_slots, plan->num_slots);
      }
    }
  }
}

TEST(PipelineMemory, TheLeastIsASlabOfThreeSegments) {
  for (const bool outputs : {false, true}) {
    for (const std::uint64_t longest : {4 * kSegment, 400 * kSegment + 7, kLongest - 4097}) {
      const std::uint64_t border = least_usable(
          std::uint64_t{1} << 40, [&](std::uint64_t usable) { return plan_of(longest, usable, outputs); });
      EXPECT_FALSE(plan_of(longest, border - 1, outputs));
      EXPECT_FALSE(plan_of(longest, 0, outputs));
      const auto plan = plan_of(longest, border, outputs);
      ASSERT_TRUE(plan);
      EXPECT_EQ(plan->num_slabs, 1u);
      EXPECT_EQ(plan->slab_weights, 3 * kSegment);
      EXPECT_GE(border, least_bytes({longest, border, 3, outputs}));
      EXPECT_LE(border, least_bytes({longest, border, 3, outputs}) * 11 / 10 + (128 << 10));
    }
  }
}

TEST(PipelineMemory, OutputsOfTheOfficialKernelTakeMemoryToo) {
  testing::Random random(4);
  int num_different = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t longest = std::max<std::uint64_t>(random_size(random, kLongest), 1);
    const std::uint64_t usable = random.below(3 * (counted(longest) + encoded(longest, true)));
    const auto without = plan_of(longest, usable), with = plan_of(longest, usable, true);
    ASSERT_LE(with.has_value(), without.has_value());
    if (with) {
      ASSERT_LE(with->resident_weights, without->resident_weights);
    }
    num_different += with != without ? 1 : 0;
  }
  EXPECT_GT(num_different, 2'000);
}

}  // namespace
}  // namespace weightpress::device
