// How a unit pipeline shares a GPU's memory out: how many units it holds at once, and in what slabs units go
// through it that it cannot hold.
#pragma once

#include <cstdint>
#include <optional>

namespace weightpress::device {

struct PipelineMemory {
  /// Units of up to so many weights are held whole; longer ones go through twice, slab by slab.
  std::uint64_t resident_weights = 0;
  std::uint64_t num_slots = 0;  ///< units whose weights are held: 0 (then resident_weights is 0), or 1 to 3
  std::uint64_t num_encodings = 0;  ///< units whose buffers are held: 0, 1 or 2
  /// Of longer units; both 0 if there are none. Whole segments, three at least.
  std::uint64_t slab_weights = 0;
  std::uint64_t num_slabs = 0;  ///< under way: 1 to 3

  friend bool operator==(const PipelineMemory&, const PipelineMemory&) = default;
};

/// Device memory that the weights of a unit and their counts take.
std::uint64_t slot_bytes(std::uint64_t num_weights);
/// That its buffers take, if its codes have a byte on average at most. has_outputs: with what the official
/// kernel makes of them.
std::uint64_t encoding_bytes(std::uint64_t num_weights, bool has_outputs);

struct PipelineMemoryRequest {
  std::uint64_t longest_unit_weights = 0;
  std::uint64_t usable_bytes = 0;  ///< of the GPU's memory
  std::uint64_t most_slots = 3;    ///< 1 or more; with units that are kept beyond the three that overlap
  bool has_outputs = false;
};
/// nullopt: not even a slab fits.
std::optional<PipelineMemory> plan_pipeline_memory(const PipelineMemoryRequest& request);

}  // namespace weightpress::device
