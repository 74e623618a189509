// One stored unit through the official kernel, slab by slab of whole chunks, with the official launch.
//
// Our own decoder goes ahead: it settles that a slab is sound (and where it is not, its verdict counts, since
// what the kernel does then means nothing), and it gives the weights to compare with where there is no
// source. Then the kernel runs over the same chunks. It sees the whole unit's grid and indices, but of each
// buffer only the slab's bytes lie in memory: pointers are shifted back by what comes before them, and any
// access elsewhere is a fault.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/decode_stage.h"
#include "format/result.h"
#include "job/fault_locator.h"
#include "job/stored_unit.h"
#include "job/unit_compressor.h"
#include "ptxvm/launch.h"
#include "ptxvm/memory.h"

namespace weightpress::job {

/// The official kernel in an interpreter.
class InterpretedKernel {
 public:
  /// Errors are kUsage, a clause: the text is no PTX, does what the interpreter does not know, or holds no
  /// entry `decode` with the official parameters.
  static Result<std::unique_ptr<InterpretedKernel>> load(std::string ptx);

  ptxvm::Memory& memory() { return memory_; }
  const ptxvm::LoadedModule& module() const { return *module_; }

 private:
  InterpretedKernel() = default;

  ptxvm::Memory memory_;
  std::unique_ptr<ptxvm::LoadedModule> module_;
};

/// What the kernel did in launches that ended.
struct KernelCounts {
  std::uint64_t num_chunks = 0;
  std::uint64_t num_weights = 0;
  std::uint64_t lane_instructions = 0;
  /// Reads past the end that the kernel is known for: of the last gap's second byte, and of the entry that
  /// short output_positions lack.
  std::uint64_t reads_past_gaps = 0, reads_past_positions = 0;
  double seconds = 0;  ///< of the launches

  KernelCounts& operator+=(const KernelCounts& other);
};

/// The buffers of one slab; kept from unit to unit.
struct KernelBuffers {
  PieceBuffer<std::uint8_t> encoded_exponent, gaps, sign_mantissa;
  PieceBuffer<std::uint32_t> positions;
  PieceBuffer<std::uint16_t> expected, outputs;
};

class OfficialDecoder {
 public:
  using OnSlab = std::function<void(std::uint64_t num_weights)>;

  // At most 2 MB of bitstream and gaps, and five bytes a weight: 12 MB at 2.7 bits, 21 MB at one.
  static constexpr std::uint64_t kDefaultSlabChunks = 128;

  /// own: our decoder. All that is given must outlive the object. At most kMaxTables tables. Reads all output
  /// positions.
  OfficialDecoder(const UnitSizes& sizes, const UnitBytes& bytes, df11::Df11DecodeStage& own,
                  InterpretedKernel& kernel, KernelBuffers& buffers, int num_threads,
                  std::uint64_t slab_chunks = kDefaultSlabChunks);

  /// False: the official loader cannot launch the kernel over this unit (docs/format.md, "Limits of the
  /// official kernel and loader"). Then only our own decoder runs.
  bool can_launch() const { return can_launch_; }
  /// The most weights in a chunk of the unit.
  std::uint64_t densest_chunk() const { return densest_chunk_; }
  /// What our own decoder says of the chunks so far: as UnitDecoder::kernel_ends().
  bool own_kernel_ends() const { return own_kernel_ends_; }

  // Each returns the first fault in the order of the stream; nothing: there is none. What bytes, source and
  // callbacks throw goes through; also Error kUsage if the kernel cannot be launched so.

  /// The chunks [first, end) against the source; nullptr: against our own decoder.
  std::optional<UnitFault> compare_chunks(std::uint64_t first, std::uint64_t end, WeightSource* source,
                                          const OnSlab& on_slab = {});
  /// The launch depends on all output positions, also on those of chunks that are not compared: they ascend,
  /// and end with the number of weights.
  std::optional<UnitFault> check_positions(WeightSource* source);

  const KernelCounts& counts() const { return counts_; }

 private:
  struct Slab {
    std::uint64_t first_chunk = 0;
    std::uint64_t num_chunks = 0;
    std::span<std::uint32_t> positions;  // [num_chunks + 1]
    std::span<std::uint8_t> encoded_exponent, gaps, sign_mantissa;
    std::span<const std::uint16_t> expected;  // weights

    std::uint64_t first_weight() const { return positions.front(); }
    std::uint64_t num_weights() const { return positions.back() - positions.front(); }
  };

  std::span<std::uint32_t> read_positions(std::uint64_t first, std::uint64_t count);
  void survey_positions();
  Slab read_slab(std::uint64_t first_chunk, std::uint64_t num_chunks);
  std::optional<UnitFault> decode_slab(Slab& slab, WeightSource* source);
  std::optional<UnitFault> run_kernel(const Slab& slab, bool has_source);
  UnitFault fault_of(const ptxvm::Fault& fault) const;
  UnitFault wrong_weight(const Slab& slab, std::uint64_t index, std::uint16_t output, bool has_source) const;
  std::uint64_t window_of(const Slab& slab, std::uint64_t chunk, std::uint64_t weight) const;

  const UnitSizes sizes_;
  const UnitBytes& bytes_;
  df11::Df11DecodeStage& own_;
  InterpretedKernel& kernel_;
  KernelBuffers& buffers_;
  const int num_threads_;
  const std::uint64_t slab_chunks_;
  std::vector<std::uint8_t> luts_;
  std::uint64_t num_sound_chunks_ = 0;  // from the first on, by their positions
  std::uint64_t densest_chunk_ = 0;
  bool can_launch_ = false;
  bool own_kernel_ends_ = true;
  KernelCounts counts_;
};

}  // namespace weightpress::job
