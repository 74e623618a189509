#include "format/unit_plan.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "format/kernel_termination.h"
#include "format/restricted_codebook.h"

namespace weightpress::df11 {
namespace {

Unexpected unit_error(std::string_view unit, ErrorCode code, const std::string& what) {
  return Unexpected(ErrorDetails{
      .code = code, .message = "unit " + std::string(unit) + ": " + what, .unit = std::string(unit)});
}

Unexpected unit_error(const UnitStatistics& statistics, ErrorCode code, const std::string& what) {
  return unit_error(statistics.unit, code, what);
}

/// Only a 1-bit code can put more than the limit into a chunk: with two bits a chunk holds at most half its
/// bits.
bool can_be_dense(const Codebook& codebook, const Df11Limits& limits) {
  return kChunkBits / codebook.shortest_length() > limits.max_chunk_weights;
}

}  // namespace

std::string_view rescue_reason_text(RescueReason reason) {
  switch (reason) {
    case RescueReason::kPaddingNeverEnds:
      return "the official tables would make the official kernel loop for ever on the padding; stored with "
             "safe tables";
    case RescueReason::kChunkTooDense:
      return "a chunk would hold more than 23,550 weights, which the official loader cannot launch; stored "
             "with a "
             "codebook of its own";
    case RescueReason::kTooManyTables:
      return "the official codebook needs more than 17 lookup tables, which the format cannot hold; stored "
             "with a "
             "codebook of its own";
  }
  return "";
}

Result<void> check_num_weights(std::string_view unit, std::uint64_t num_weights, const Df11Limits& limits) {
  if (num_weights == 0) return unit_error(unit, ErrorCode::kEmptyUnit, "it holds no weights");
  if (num_weights <= limits.max_weights) return {};
  return unit_error(unit, ErrorCode::kUnitTooLarge,
                    "it holds " + std::to_string(num_weights) + " weights; the official kernel can index " +
                        std::to_string(limits.max_weights) +
                        ": give the model a definition with smaller units");
}

Result<UnitPlan> plan_unit(const UnitStatistics& statistics, const CodingOptions& options,
                           const DensestChunk& densest_chunk) {
  const Histogram& histogram = statistics.histogram;
  const Df11Limits& limits = options.limits;
  const std::uint64_t num_weights = total_count(histogram);
  if (auto sizes = check_num_weights(statistics.unit, num_weights, limits); !sizes)
    return Unexpected(std::move(sizes.error()));
  for (std::uint32_t exponent = kFirstPointer; exponent < kNumSymbols; ++exponent) {
    if (histogram[exponent] != 0) {
      return unit_error(statistics, ErrorCode::kExponentTooLarge,
                        "it holds Inf, NaN or values of 2^113 and above (exponent " +
                            std::to_string(exponent) + "), which DF11 cannot store");
    }
  }
  UnitPlan plan;
  plan.codebook = build_official_codebook(histogram);
  plan.ambiguous_limiter = plan.codebook.ambiguous_limiter;
  if (plan.ambiguous_limiter && options.strict_identity) {
    return unit_error(
        statistics, ErrorCode::kAmbiguousLimiter,
        "codes above 32 bits have to be shortened, and the official choice among equally rare exponents "
        "depends on numpy's version; leave out --strict-identity to store one of the valid results");
  }

  const auto is_dense = [&] {
    return can_be_dense(plan.codebook, limits) && densest_chunk(plan.codebook) > limits.max_chunk_weights;
  };
  if (count_tables(plan.codebook) > limits.max_tables) {
    if (options.strict_identity) {
      return unit_error(statistics, ErrorCode::kTooManyTables,
                        "the official codebook needs " + std::to_string(count_tables(plan.codebook)) +
                            " lookup tables and the format has room for " +
                            std::to_string(limits.max_tables) +
                            "; leave out --strict-identity to store it with a codebook of its own");
    }
    plan.rescues.push_back(RescueReason::kTooManyTables);
    plan.codebook = build_restricted_codebook(histogram, 1);
  }
  if (is_dense()) {
    if (options.strict_identity) {
      return unit_error(
          statistics, ErrorCode::kChunkTooDense,
          "a chunk would hold more than " + std::to_string(limits.max_chunk_weights) +
              " weights and the official loader could not decode it; leave out --strict-identity to "
              "store it with a codebook of its own");
    }
    plan.rescues.push_back(RescueReason::kChunkTooDense);
    plan.codebook = build_restricted_codebook(histogram, 2);
  }
  if (!plan.rescues.empty()) plan.ambiguous_limiter = false;  // an own codebook has no limiter
  assert(count_tables(plan.codebook) <= kMaxTables);

  const std::uint64_t bits = total_bits(histogram, plan.codebook);
  plan.layout = make_stream_layout(num_weights, bits, plan.codebook.lengths[statistics.last_exponent]);
  if (plan.layout.num_bytes > limits.max_stream_bytes) {
    return unit_error(statistics, ErrorCode::kStreamTooLong,
                      "its bitstream takes " + std::to_string(plan.layout.num_bytes) +
                          " bytes; the official kernel can index " + std::to_string(limits.max_stream_bytes) +
                          ": give the model a definition with smaller units");
  }

  const TableFill fill = plan.rescues.empty() ? options.fill : TableFill::kSafe;
  plan.tables = build_lookup_tables(plan.codebook, fill);
  const StreamEnd end = make_stream_end(plan.codebook, bits, statistics.last_exponent);
  if (!official_kernel_ends(plan.tables.rows, end)) {
    assert(fill == TableFill::kCompat);  // safe tables are total
    if (options.strict_identity) {
      return unit_error(
          statistics, ErrorCode::kPaddingNeverEnds,
          "with the official tables the official kernel would loop for ever on the padding; leave out "
          "--strict-identity to store it with safe tables");
    }
    plan.rescues.push_back(RescueReason::kPaddingNeverEnds);
    plan.tables = build_lookup_tables(plan.codebook, TableFill::kSafe);
  }
  return plan;
}

}  // namespace weightpress::df11
