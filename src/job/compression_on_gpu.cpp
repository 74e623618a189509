// What a GPU has to do with a compression: which units are on it, what is given to it ahead, what happens
// when it fails.
#include <algorithm>
#include <utility>

#include "job/compression.h"

namespace weightpress::job {
namespace {

// Slabs of the next unit that are given to a GPU before the host waits for the counts of this one; and how
// far it looks for units to begin.
constexpr int kSlabsAhead = 4, kUnitsAhead = 16;

}  // namespace

void Compression::make_stages() {
  report_.device = device_.name;
  report_.why_device = device_.why;
  if (purpose_ == Purpose::kWrite && options_.verify) report_.verifier = "host decoder";
  if (!device_.gpu || plan_.assignment.units.empty()) {
    stages_ = std::make_unique<host::HostStages>(num_threads_);
    return;
  }
  auto stages = std::make_unique<StagesOfEither>(device_.gpu->stages(), num_threads_,
                                                 [this](const GpuFailure& failure) { give_up_gpu(failure); });
  slab_stages_ = stages.get();
  stages_ = std::move(stages);
  device::UnitPipelineSizes sizes;
  for (const model::Unit& unit : plan_.assignment.units)
    sizes.longest_unit_weights = std::max(sizes.longest_unit_weights, unit.num_weights);
  // Pinned memory takes the place of the slab's buffers.
  sizes.host_bytes = 4 * memory_.slab_weights;
  sizes.device_bytes = options_.vram_bytes;
  try {
    pipeline_ = device_.gpu->make_pipeline(sizes);
    upcoming_ = [this](std::size_t unit_index) { return begin_ahead(unit_index); };
    if (!report_.verifier.empty()) report_.verifier = "wp_decode";
  } catch (const Error& error) {
    give_up_gpu({error.details()});
  }
}

void Compression::begin_on_gpu(PlannedUnit& unit) {
  unit.on_gpu = std::make_unique<GpuUnit>(*pipeline_, unit.source, num_threads_, &times_);
  units_on_gpu_.push_back(&unit);
}

void Compression::leave_gpu(PlannedUnit& unit) {
  unit.on_gpu.reset();
  std::erase(units_on_gpu_, &unit);
}

void Compression::feed_all(PlannedUnit& unit) {
  if (!unit.on_gpu) {
    // Units that were begun for later make way, the last one first.
    while (!pipeline_->has_room()) leave_gpu(*units_on_gpu_.back());
    begin_on_gpu(unit);
  }
  while (!unit.on_gpu->has_all()) unit.on_gpu->feed();
}

/// In the order in which units are planned.
Compression::PlannedUnit* Compression::begin_ahead(std::size_t unit_index) {
  const model::Unit& unit = plan_.assignment.units[unit_index];
  if (past_.planned(unit.name) != nullptr || past_.kept(unit.name) != nullptr) return nullptr;
  std::unique_ptr<PlannedUnit>& ahead = ahead_[unit_index];
  if (!ahead) ahead = std::make_unique<PlannedUnit>(unit, *this);
  return ahead.get();
}

void Compression::feed_ahead(std::size_t unit_index) {
  const std::size_t end =
      std::min(plan_.assignment.units.size(), unit_index + 1 + static_cast<std::size_t>(kUnitsAhead));
  for (std::size_t next = unit_index + 1; next < end && uses_gpu(); ++next) {
    PlannedUnit* const unit = upcoming_(next);
    if (unit == nullptr) continue;
    if (!unit->on_gpu) {
      if (!pipeline_->has_room()) return;
      begin_on_gpu(*unit);
    }
    if (unit->on_gpu->has_all()) continue;
    unit->on_gpu->feed();
    return;
  }
}

void Compression::encode_ahead(std::size_t unit_index) {
  if (unit_index + 1 >= plan_.assignment.units.size() || !pipeline_->can_encode()) return;
  PlannedUnit* const next = upcoming_(unit_index + 1);
  if (next == nullptr || !next->on_gpu || !next->on_gpu->has_all() || next->on_gpu->is_encoding()) return;
  // In single-file layouts the plan is there.
  if (is_single_file()) {
    next->on_gpu->begin_encoding(next->plan, options_.verify);
  } else if (const auto plan = next->on_gpu->plan(next->name, compressor_options_.coding, next->counts);
             plan && *plan) {
    next->on_gpu->begin_encoding(**plan, options_.verify);
  }
}

void Compression::give_up_gpu(const GpuFailure& failure) {
  const bool is_short_of_memory = failure.error.code == ErrorCode::kOutOfMemory;
  if (is_short_of_memory && !slab_stages_->uses_gpu()) {
    while (!units_on_gpu_.empty()) leave_gpu(*units_on_gpu_.back());
    pipeline_.reset();
    slab_stages_->use_gpu();
    report_.notes.push_back("units go through the GPU in slabs: " + failure.error.message);
    if (!report_.verifier.empty()) report_.verifier = "host decoder";
    return;
  }
  const std::string what = device_.name + ": " + failure.error.message;
  if (device_.is_required) throw Error(ErrorCode::kDeviceFailed, what);
  while (!units_on_gpu_.empty()) leave_gpu(*units_on_gpu_.back());
  pipeline_.reset();
  slab_stages_->give_up_gpu();
  const std::string warning = "the GPU failed, and the CPU goes on: " + what;
  report_.device = "cpu";
  report_.why_device = what;
  if (!report_.verifier.empty()) report_.verifier = "host decoder";
  if (options_.on_warning) options_.on_warning(warning);
}

Result<df11::UnitPlan> Compression::count_and_plan(PlannedUnit& unit, std::size_t unit_index) {
  if (uses_gpu()) {
    try {
      feed_all(unit);
      // So that the copies go on while the host waits for the counts.
      for (int slab = 0; slab < kSlabsAhead; ++slab) feed_ahead(unit_index);
      if (auto plan = unit.on_gpu->plan(unit.name, compressor_options_.coding, unit.counts)) {
        ++report_.memory.units_held;
        on_slab()(unit.unit.num_weights);
        // Another pass writes it.
        if (is_single_file() || purpose_ == Purpose::kEstimate) leave_gpu(unit);
        return std::move(*plan);
      }
    } catch (const GpuFailure& failure) {
      give_up_gpu(failure);
    }
    leave_gpu(unit);
  }
  unit.compressor.hold(held_->take(unit.unit.num_weights));
  ++(unit.compressor.is_held() ? report_.memory.units_held : report_.memory.units_streamed);
  Result<df11::UnitPlan> plan = unit.compressor.plan(on_slab());
  unit.counts = unit.compressor.counts();
  return plan;
}

}  // namespace weightpress::job
