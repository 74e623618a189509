// include/weightpress/df11.h: one unit, from memory to memory.
#include <new>
#include <string>
#include <utility>

#include <weightpress/df11.h>

#include "host/host_stages.h"
#include "job/coding_options.h"
#include "job/unit_memory.h"

namespace weightpress {

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

}  // namespace weightpress
