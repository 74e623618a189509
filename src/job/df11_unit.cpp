// include/weightpress/df11.h: one unit, from memory to memory.
#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include <weightpress/df11.h>

#include "host/decode.h"
#include "host/host_stages.h"
#include "job/coding_options.h"
#include "job/unit_decoder.h"
#include "job/unit_memory.h"

namespace weightpress {
namespace {

/// What a decoder relies on. Throws kCorruptFile.
job::UnitSizes checked_sizes(const Df11UnitView& unit) {
  const auto check = [](bool holds, const char* what) {
    if (!holds) throw Error(ErrorCode::kCorruptFile, std::string("the unit in memory: ") + what);
  };
  job::UnitSizes sizes;
  sizes.num_weights = unit.sign_mantissa.size();
  sizes.stream_bytes = unit.encoded_exponent.size();
  sizes.num_chunks = (sizes.stream_bytes + df11::kChunkBytes - 1) / df11::kChunkBytes;
  sizes.num_positions = unit.output_positions.size() / 4;
  check(unit.luts.size() % df11::kNumSymbols == 0 && unit.luts.size() >= 2 * df11::kNumSymbols,
        "luts are not two rows of 256 bytes or more");
  sizes.num_tables = unit.luts.size() / df11::kNumSymbols - 1;
  check(sizes.num_weights > 0 && sizes.num_weights <= UINT32_MAX,
        "sign_mantissa is not for 1 to 4,294,967,295 weights");
  check(sizes.stream_bytes > 0, "encoded_exponent is empty");
  check(sizes.stream_bytes <= 4 * sizes.num_weights, "encoded_exponent has more than 32 bits a weight");
  check(unit.gaps.size() == sizes.num_chunks * df11::kGapBytesPerChunk,
        "gaps do not have 320 bytes for each 4096 of encoded_exponent");
  check(unit.output_positions.size() % 4 == 0 &&
            (sizes.num_positions == sizes.num_chunks + 1 ||
             (sizes.num_positions == sizes.num_chunks && sizes.num_chunks > 1)),
        "output_positions do not have an entry for each 4096 bytes of encoded_exponent and one more");
  return sizes;
}

}  // namespace

Df11Unit compress_df11_unit(std::span<const std::uint16_t> weights, const Df11UnitOptions& options) try {
  job::check_identity_options(options.luts, options.strict_identity);
  host::HostStages stages(host::usable_num_threads(options.num_threads));
  job::UnitCompressorOptions compressor;
  compressor.coding = job::coding_options(options.luts, options.strict_identity);

  job::MemorySource source(weights);
  job::MemorySink sink;
  job::SlabBuffers buffers;
  const df11::UnitPlan plan =
      job::compress_unit("in memory", source, sink, stages, buffers, compressor).value();
  Df11Unit unit = std::move(sink.unit);
  for (const df11::RescueReason reason : plan.rescues)
    unit.rescues.emplace_back(df11::rescue_reason_text(reason));
  unit.ambiguous_limiter = plan.ambiguous_limiter;
  return unit;
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::kOutOfMemory,
              "there is not enough memory for a unit of " + std::to_string(weights.size()) + " weights");
}

std::vector<std::uint16_t> decompress_df11_unit(const Df11UnitView& unit, int num_threads) try {
  const job::UnitSizes sizes = checked_sizes(unit);
  const job::MemoryUnit bytes(unit);
  host::HostDecodeStage stage(host::usable_num_threads(num_threads));
  job::DecodeBuffers buffers;
  std::vector<std::uint16_t> weights(sizes.num_weights);
  job::UnitDecoder decoder(sizes, bytes, stage, buffers);
  const auto fault = decoder.decode([&](std::uint64_t first, std::span<const std::uint16_t> slab) {
    std::copy(slab.begin(), slab.end(), weights.begin() + static_cast<std::ptrdiff_t>(first));
  });
  if (!fault) return weights;
  throw Error(ErrorDetails{.code = ErrorCode::kCorruptFile,
                           .message = "the unit in memory: " + fault->message,
                           .offset = fault->weight});
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::kOutOfMemory, "there is not enough memory for a unit of " +
                                           std::to_string(unit.sign_mantissa.size()) + " weights");
}

}  // namespace weightpress
