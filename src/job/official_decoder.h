// One stored unit through the official kernel, slab by slab of whole chunks, with the official launch.
//
// Our own decoder goes ahead: it settles that a slab is sound (and where it is not, its verdict counts, since
// what the kernel does then means nothing), and it gives the weights to compare with where there is no
// source. Then the kernel runs over the same chunks, in the interpreter or on a GPU. A GPU would hang on a
// unit on whose padding the kernel never ends: there our own decoder's word counts, and it is not launched.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "format/decode_stage.h"
#include "job/fault_locator.h"
#include "job/official_kernel_runner.h"
#include "job/stored_unit.h"
#include "job/unit_compressor.h"

namespace weightpress::job {

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

  /// own: our decoder; that of the host where the kernel runs on a GPU, whose word alone launches nothing.
  /// All that is given must outlive the object. At most kMaxTables tables. Reads all output positions.
  OfficialDecoder(const UnitSizes& sizes, const UnitBytes& bytes, df11::Df11DecodeStage& own,
                  OfficialKernelRunner& kernel, KernelBuffers& buffers, int num_threads,
                  std::uint64_t slab_chunks = kDefaultSlabChunks);

  /// False: the official loader cannot launch the kernel over this unit (docs/format.md, "Limits of the
  /// official kernel and loader"). Then only our own decoder runs.
  bool can_launch() const { return can_launch_; }
  /// The most weights in a chunk of the unit.
  std::uint64_t densest_chunk() const { return densest_chunk_; }
  /// What our own decoder says of the chunks so far: as UnitDecoder::kernel_ends().
  bool own_kernel_ends() const { return own_kernel_ends_; }

  // Each returns the first fault in the order of the stream; nothing: there is none. What bytes, source,
  // callbacks and OfficialKernelRunner::run() throw goes through: after kDeviceFailed, another object with
  // another runner does the unit anew.

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
  df11::DecodeArguments arguments_of(const Slab& slab) const;
  std::optional<UnitFault> decode_slab(Slab& slab, WeightSource* source);
  std::optional<UnitFault> run_kernel(const Slab& slab, bool has_source);
  static UnitFault never_ends(std::uint64_t chunk);
  UnitFault fault_of(const ptxvm::Fault& fault) const;
  UnitFault wrong_weight(const Slab& slab, std::uint64_t index, std::uint16_t output, bool has_source) const;
  std::uint64_t window_of(const Slab& slab, std::uint64_t chunk, std::uint64_t weight) const;

  const UnitSizes sizes_;
  const UnitBytes& bytes_;
  df11::Df11DecodeStage& own_;
  OfficialKernelRunner& kernel_;
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
