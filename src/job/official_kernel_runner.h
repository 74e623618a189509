// What runs the official kernel over a slab of a stored unit: the interpreter, or a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "format/decode_stage.h"
#include "job/stored_unit.h"
#include "ptxvm/launch.h"

namespace weightpress::job {

/// What the kernel did in launches that ended.
struct KernelCounts {
  std::uint64_t num_chunks = 0;
  std::uint64_t num_weights = 0;
  double seconds = 0;  ///< of the launches
  // 0 where a GPU ran it: only the interpreter counts these.
  std::uint64_t lane_instructions = 0;
  /// Reads past the end that the kernel is known for: of the last gap's second byte, and of the entry that
  /// short output_positions lack.
  std::uint64_t reads_past_gaps = 0, reads_past_positions = 0;

  KernelCounts& operator+=(const KernelCounts& other) {
    num_chunks += other.num_chunks;
    num_weights += other.num_weights;
    seconds += other.seconds;
    lane_instructions += other.lane_instructions;
    reads_past_gaps += other.reads_past_gaps;
    reads_past_positions += other.reads_past_positions;
    return *this;
  }
};

/// Whole chunks of a unit, which our own decoder found sound.
struct KernelSlab {
  UnitSizes sizes;  ///< of the unit; below kMaxUnitWeights and kMaxStreamBytes
  /// With sign_mantissa, and with weights: the kernel's outputs, which stay as they are where it writes
  /// nothing. No source.
  df11::DecodeArguments arguments;
  std::uint64_t densest_chunk = 0;  ///< weights, of the unit: at most kMaxChunkWeights
  int num_threads = 1;              ///< of the host

  std::uint64_t num_chunks() const { return arguments.positions.size() - 1; }
  std::uint64_t end_chunk() const { return arguments.first_chunk + num_chunks(); }
  bool is_last() const { return end_chunk() == sizes.num_chunks; }
};

struct KernelRun {
  std::optional<ptxvm::Fault> fault;  ///< in the interpreter: it did not end, or left its buffers
  KernelCounts counts;                ///< without a fault
};

/// One caller at a time.
class OfficialKernelRunner {
 public:
  virtual ~OfficialKernelRunner() = default;

  /// "the interpreter", "cuda:0 (NVIDIA H200, cubin for sm_90)"
  virtual const std::string& name() const = 0;
  /// It stops a kernel that never ends or leaves its buffers, and counts what it does. Anything else gets no
  /// slab on which the kernel would not end.
  virtual bool is_interpreter() const = 0;
  /// Waits. Throws Error: kUsage if the kernel cannot be launched so, kDeviceFailed if a GPU failed (and then
  /// the object is of no more use).
  virtual KernelRun run(const KernelSlab& slab) = 0;
};

}  // namespace weightpress::job
