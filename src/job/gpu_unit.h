// A unit of a model on its way through a GPU: what src/device does with it, between where its weights come
// from and where its buffers go.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "device/unit_pipeline.h"
#include "format/unit_plan.h"
#include "job/stage_times.h"
#include "job/unit_compressor.h"
#include "job/unit_counts.h"
#include "job/weight_sums.h"

namespace weightpress::job {

/// The GPU failed, not the source, the sink or the unit: it is thrown through everything, and the unit begins
/// anew on the CPU.
struct GpuFailure {
  ErrorDetails error;
};

class GpuUnit {
 public:
  /// All that is given must outlive the object. pipeline: has room for a unit. Throws GpuFailure, as all
  /// members do.
  GpuUnit(device::UnitPipeline& pipeline, WeightSource& source, int num_threads, StageTimes* times);

  bool has_all() const { return unit_->has_all(); }
  /// Reads the next slab and gives it to the GPU. Throws what the source throws.
  void feed();

  /// Once all are fed; the same result each time. nullopt: it takes a look at the weights, for which a
  /// UnitCompressor is there (a 1-bit code; exponents that cannot be stored). Errors: those of
  /// df11::plan_unit().
  std::optional<Result<df11::UnitPlan>> plan(std::string_view unit, const df11::CodingOptions& coding,
                                             UnitCounts& counts);

  /// Once all are fed: the GPU begins to make the buffers. Not needed before encode().
  void begin_encoding(const df11::UnitPlan& plan, bool verifies);
  bool is_encoding() const { return is_encoding_; }
  device::UnitPipeline& pipeline() const { return pipeline_; }
  /// Once all are fed: makes the buffers, and reads them back in place if `verifies`. between: called after
  /// each piece that was written. Weights that are not those of the plan are a GpuFailure too: whether it is
  /// the source that changed, or the GPU's memory, shows when the CPU does it. Throws what the sink throws.
  void encode(const df11::UnitPlan& plan, UnitSink& sink, bool verifies,
              const std::function<void()>& between);

 private:
  void keep_last(std::span<const std::uint16_t> weights);

  device::UnitPipeline& pipeline_;
  WeightSource& source_;
  const int num_threads_;
  StageTimes* const times_;
  std::unique_ptr<device::UnitOnGpu> unit_;
  std::uint64_t num_fed_ = 0;  // to be counted, or again, to be encoded
  WeightSums sums_;            // of these
  bool goes_in_slabs_ = false;
  std::vector<std::uint16_t> last_weights_;  // that were fed, if slabs may begin with them
  bool is_planned_ = false, is_encoding_ = false;
  UnitCounts counts_;
  std::optional<Result<df11::UnitPlan>> plan_;
  df11::UnitPlan encoded_plan_;  // the GPU's, from begin_encoding() on
};

}  // namespace weightpress::job
