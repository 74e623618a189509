// What a GPU has to do with a compression: which units are on it, what is given to it ahead, what happens
// when it fails.
#include <algorithm>
#include <utility>

#include "job/compression.h"
#include "job/official_kernel.h"

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
  stages_ = std::make_unique<host::HostStages>(num_threads_);
  if (options_.verifier == Verifier::kOfficial && device_.gpus.empty())
    throw Error(ErrorCode::kDeviceFailed, "--verifier official takes a GPU: " + device_.why);
  if (device_.gpus.empty() || plan_.assignment.units.empty()) return;
  if (!report_.verifier.empty() && options_.verifier != Verifier::kOwn) find_official_kernel();
  upcoming_ = [this](std::size_t unit_index) { return begin_ahead(unit_index); };
  if (!official_ptx_.empty() && options_.verifier == Verifier::kAuto) {
    try {
      return make_pipelines(options_.vram_bytes);
    } catch (const Error& error) {  // perhaps only this kernel cannot be loaded
      report_.notes.push_back(std::string("the official kernel does not read back: ") + error.what());
      official_ptx_.clear();
    }
  }
  try {
    make_pipelines(options_.vram_bytes);
  } catch (const Error& error) {
    give_up_gpu({error.details()});
  }
}

/// It is not there on every machine.
void Compression::find_official_kernel() {
  try {
    KernelFile file = find_kernel(std::nullopt, places_of_this_process());
    official_ptx_ = std::move(file.text);
  } catch (const Error& error) {
    if (options_.verifier == Verifier::kOfficial) throw;
    if (error.code() != ErrorCode::kNotFound)
      report_.notes.push_back(std::string("the official kernel does not read back: ") + error.what());
  }
}

/// device_bytes: of each GPU's memory, 0: most of what is free. Throws Error.
void Compression::make_pipelines(std::uint64_t device_bytes) {
  device::UnitPipelineSizes sizes;
  for (const model::Unit& unit : plan_.assignment.units)
    sizes.longest_unit_weights = std::max(sizes.longest_unit_weights, unit.num_weights);
  if (is_single_file() && purpose_ == Purpose::kWrite) sizes.num_units_kept = plan_.assignment.units.size();
  // Pinned memory takes the place of the slab's buffers.
  sizes.host_bytes = 4 * memory_.slab_weights / device_.gpus.size();
  sizes.device_bytes = device_bytes;
  sizes.official_ptx = official_ptx_;
  std::vector<std::unique_ptr<device::UnitPipeline>> made;
  for (const auto& gpu : device_.gpus) made.push_back(gpu->make_pipeline(sizes));
  for (const auto& pipeline : made) {
    const device::UnitPipeline::Memory& memory = pipeline->memory();
    if (memory.resident_weights >= sizes.longest_unit_weights) continue;
    report_.notes.push_back("units of more than " + std::to_string(memory.resident_weights) +
                            " weights go through the GPU in slabs: the longest unit takes " +
                            std::to_string(memory.needed_bytes) + " bytes of the GPU's memory, of which " +
                            std::to_string(memory.usable_bytes) + " may be used");
    break;
  }
  pipelines_ = std::move(made);
  if (!report_.verifier.empty()) report_.verifier = official_ptx_.empty() ? "wp_decode" : "decode";
}

/// That with the fewest units. nullptr: none has room.
device::UnitPipeline* Compression::pipeline_with_room(std::uint64_t num_weights) const {
  device::UnitPipeline* found = nullptr;
  std::ptrdiff_t fewest = 0;
  for (const auto& pipeline : pipelines_) {
    if (!pipeline->has_room(num_weights)) continue;
    const std::ptrdiff_t units = std::ranges::count_if(
        units_on_gpu_, [&](const PlannedUnit* unit) { return &unit->on_gpu->pipeline() == pipeline.get(); });
    if (found != nullptr && units >= fewest) continue;
    found = pipeline.get();
    fewest = units;
  }
  return found;
}

void Compression::begin_on_gpu(PlannedUnit& unit, device::UnitPipeline& pipeline) {
  unit.on_gpu = std::make_unique<GpuUnit>(pipeline, unit.source, num_threads_, &times_);
  units_on_gpu_.push_back(&unit);
}

void Compression::leave_gpu(PlannedUnit& unit) {
  unit.on_gpu.reset();
  std::erase(units_on_gpu_, &unit);
}

void Compression::feed_all(PlannedUnit& unit) {
  if (!unit.on_gpu) {
    device::UnitPipeline* pipeline = nullptr;
    // Units that were begun for later make way, the last one first.
    while ((pipeline = pipeline_with_room(unit.unit.num_weights)) == nullptr)
      leave_gpu(*units_on_gpu_.back());
    begin_on_gpu(unit, *pipeline);
  }
  while (!unit.on_gpu->has_all()) unit.on_gpu->feed();
}

void Compression::make_way_for_encoding(PlannedUnit& unit) {
  const device::UnitPipeline& pipeline = unit.on_gpu->pipeline();
  while (!unit.on_gpu->is_encoding() && !pipeline.can_encode()) {
    const auto last = std::find_if(units_on_gpu_.rbegin(), units_on_gpu_.rend(), [&](PlannedUnit* other) {
      return &other->on_gpu->pipeline() == &pipeline && other->on_gpu->is_encoding();
    });
    leave_gpu(**last);
  }
}

/// Once it is counted, for another pass, which writes it: where memory is left for those on their way.
bool Compression::stays_on_gpu(const PlannedUnit& unit) const {
  constexpr std::uint64_t kOnTheirWay = 3;
  return purpose_ == Purpose::kWrite &&
         (!is_single_file() || unit.on_gpu->pipeline().num_free_slots() >= kOnTheirWay);
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
      device::UnitPipeline* const pipeline = pipeline_with_room(unit->unit.num_weights);
      if (pipeline == nullptr) return;
      begin_on_gpu(*unit, *pipeline);
    }
    if (unit->on_gpu->has_all()) continue;
    unit->on_gpu->feed();
    return;
  }
}

void Compression::encode_ahead(std::size_t unit_index) {
  for (std::size_t i = 1; i <= pipelines_.size() && unit_index + i < plan_.assignment.units.size(); ++i) {
    PlannedUnit* const next = upcoming_(unit_index + i);
    if (next == nullptr || !next->on_gpu || !next->on_gpu->has_all()) return;
    if (next->on_gpu->is_encoding()) continue;
    if (!next->on_gpu->pipeline().can_encode()) return;
    // In single-file layouts the plan is there.
    if (is_single_file()) {
      next->on_gpu->begin_encoding(next->plan, options_.verify);
    } else if (const auto plan = next->on_gpu->plan(next->name, compressor_options_.coding, next->counts);
               plan && *plan) {
      next->on_gpu->begin_encoding(**plan, options_.verify);
    }
  }
}

void Compression::give_up_gpu(const GpuFailure& failure) {
  std::uint64_t used_bytes = 0;  // at most, of a GPU's memory
  for (const auto& pipeline : pipelines_) used_bytes = std::max(used_bytes, pipeline->memory().usable_bytes);
  while (!units_on_gpu_.empty()) leave_gpu(*units_on_gpu_.back());
  pipelines_.clear();
  std::string why = failure.error.message;
  bool is_short_of_memory = failure.error.code == ErrorCode::kOutOfMemory;
  while (is_short_of_memory && (used_bytes /= 2) > 0) {
    try {
      make_pipelines(used_bytes);
      report_.notes.push_back("the GPU goes on with " + std::to_string(used_bytes) +
                              " bytes of its memory: " + why);
      return;
    } catch (const Error& error) {
      why = error.what();
      is_short_of_memory = error.code() == ErrorCode::kOutOfMemory;
    }
  }
  const std::string what = device_.name + ": " + why;
  if (device_.is_required) throw Error(ErrorCode::kDeviceFailed, what);
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
        if (!stays_on_gpu(unit)) leave_gpu(unit);
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
