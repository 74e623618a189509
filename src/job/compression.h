// What compress() and estimate() have in common: the model, what cannot be stored, the plan of each unit, the
// sizes of the files, the report.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weightpress/compress.h>

#include "host/host_stages.h"
#include "job/checkpoint_source.h"
#include "job/device_choice.h"
#include "job/gpu_unit.h"
#include "job/held_weights.h"
#include "job/journal.h"
#include "job/journal_records.h"
#include "job/memory_plan.h"
#include "job/model_plan.h"
#include "job/output_record.h"
#include "job/stage_times.h"
#include "job/tensor_file.h"
#include "job/unit_compressor.h"
#include "model/checkpoint.h"

namespace weightpress::job {

/// What the plans of units are made for.
enum class Purpose : std::uint8_t { kEstimate, kWrite };

class Compression {
 public:
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;

 protected:
  /// Opens the model and finds its definition. options must outlive the object.
  Compression(const CompressOptions& options, Purpose purpose);
  ~Compression() = default;

  /// A unit from its plan to its end.
  struct PlannedUnit {
    PlannedUnit(model::Unit planned_unit, Compression& job);

    const model::Unit unit;  // its own: units that are kept are taken out of the assignment meanwhile
    const std::string name;  // printable
    CheckpointSource source;
    UnitCompressor compressor;
    df11::UnitPlan plan;
    std::uint64_t source_hash = 0;
    bool is_from_past = false;        // the plan is that of an earlier run
    UnitCounts counts;                // that the plan follows from, unless it is from the past
    std::unique_ptr<GpuUnit> on_gpu;  // its weights are there, or on their way
  };

  // ---- before a weight is read

  /// Units of which headers tell that they cannot be stored are refused or kept; config files are made;
  /// memory is shared out; the report begins.
  void settle();
  bool is_single_file() const;

  // ---- units

  /// Reads and counts a unit, or takes what an earlier run has counted. nullptr: it is kept.
  std::unique_ptr<PlannedUnit> plan_unit(std::size_t unit_index, CompressPhase phase);
  /// Asks the system to read a unit ahead, so that disk and processors work at once.
  void read_ahead(std::size_t unit_index) const;
  /// All of plan_unit() in order; then those that are kept are out of the assignment.
  std::vector<std::unique_ptr<PlannedUnit>> plan_all_units();
  /// Takes units out of the assignment, once all are planned.
  void keep_units(const std::vector<std::size_t>& kept);
  std::unique_ptr<TensorFile> make_unit_file(std::filesystem::path path, const PlannedUnit& unit) const;
  std::unique_ptr<TensorFile> make_leftover_file(std::filesystem::path path) const;
  std::unique_ptr<TensorFile> make_single_file(std::filesystem::path path,
                                               const std::vector<std::unique_ptr<PlannedUnit>>& units) const;
  /// weightpress.json.
  std::string make_record() const;

  // ---- a GPU

  bool uses_gpu() const { return !pipelines_.empty(); }
  /// All weights of a unit to a GPU, those that are not there yet. Throws GpuFailure.
  void feed_all(PlannedUnit& unit);
  /// Takes back what was begun for later units, if it is in the way. Throws GpuFailure.
  void make_way_for_encoding(PlannedUnit& unit);
  void leave_gpu(PlannedUnit& unit);
  /// One slab of the next unit after `unit_index` that is not there yet. Throws GpuFailure.
  void feed_ahead(std::size_t unit_index);
  /// The units after `unit_index`, one a GPU, begin to be encoded, if their weights are there. Throws
  /// GpuFailure.
  void encode_ahead(std::size_t unit_index);
  /// GPUs without enough memory go on with half of what they took. After anything else, or if no half is
  /// left, the CPU takes over, with a warning. Throws Error if a GPU was asked for.
  void give_up_gpu(const GpuFailure& failure);

  // ---- progress and report

  void show_progress();
  void begin_unit(const model::Unit& unit, CompressPhase phase);
  UnitCompressor::OnSlab on_slab();
  void finish_report();
  std::uint64_t kept_bytes(const std::vector<std::size_t>& tensors) const;

  const CompressOptions& options_;
  const Purpose purpose_;
  const model::Checkpoint checkpoint_;
  ModelPlan plan_;
  std::optional<std::string> config_, generation_config_;  // files that go beside the tensors

  // Once memory is planned.
  int num_threads_ = 1;
  MemoryPlan memory_;
  std::unique_ptr<df11::Df11Stages> stages_;
  DeviceChoice device_;
  std::string official_ptx_;                                      // that GPUs read back with; empty: none
  std::vector<std::unique_ptr<device::UnitPipeline>> pipelines_;  // one a GPU; none: the CPU
  /// The unit of that number, if its weights will be wanted on the GPU; else nullptr.
  std::function<PlannedUnit*(std::size_t)> upcoming_;
  std::map<std::size_t, std::unique_ptr<PlannedUnit>> ahead_;  // begun before their turn
  std::vector<PlannedUnit*> units_on_gpu_;                     // in the order in which they were begun
  std::unique_ptr<HeldWeights> held_;
  SlabBuffers buffers_;
  UnitCompressorOptions compressor_options_;

  PastRun past_;
  Journal* journal_ = nullptr;  // of this run, if it keeps one

  std::vector<UnitReasons> kept_units_;
  std::vector<UnitReasons> own_coding_;
  model::CastCounts cast_counts_;
  std::uint64_t histogram_bytes_ = 0;  // that are kept
  StageTimes times_;
  CompressReport report_;
  CompressProgress progress_;

 private:
  void settle_units();
  void check_header_size() const;
  void make_config();
  void plan_memory_use();
  MemoryPlan plan_memory_beside_gpu(MemoryRequest request);
  void make_stages();
  PlannedUnit* begin_ahead(std::size_t unit_index);
  void find_official_kernel();
  void make_pipelines(std::uint64_t device_bytes);
  device::UnitPipeline* pipeline_with_room(std::uint64_t num_weights) const;
  void begin_on_gpu(PlannedUnit& unit, device::UnitPipeline& pipeline);
  bool stays_on_gpu(const PlannedUnit& unit) const;
  Result<df11::UnitPlan> count_and_plan(PlannedUnit& unit, std::size_t unit_index);
  std::uint64_t lists_bytes() const;
  void begin_report();
  void drop_tied_duplicate();
  void account(const PlannedUnit& unit);
  std::unique_ptr<TensorFile> make_file(std::filesystem::path path) const;

  ErrorDetails dtype_error(const model::Unit& unit, std::size_t tensor_index) const;
  std::string file_of(const model::SourceTensor& tensor) const;
  void keep_or_throw(const model::Unit& unit, ErrorDetails error);
  void check_something_is_left() const;
  /// Names the tensor in errors that point at a weight, and the option that helps.
  ErrorDetails located(ErrorDetails error, const model::Unit& unit, const CheckpointSource& source) const;
  ErrorDetails with_advice(ErrorDetails error) const;
};

/// What both check of the options. Throws kUsage.
void check_compress_options(const CompressOptions& options);

}  // namespace weightpress::job
