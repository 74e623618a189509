// One stored unit through the decoder, slab by slab of whole chunks: to weights, to a comparison with the
// source, or to the proof that its bitstream, gaps and output positions belong together. Knows neither files
// nor devices.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "format/decode_stage.h"
#include "job/fault_locator.h"
#include "job/slab_memory.h"
#include "job/stored_unit.h"
#include "job/unit_compressor.h"

namespace weightpress::job {

/// The buffers of the slabs that are under way; kept from unit to unit. As many slabs' as the stage that they
/// are used with allows: one on the CPU.
class DecodeBuffers {
 public:
  /// memory: what they are made of.
  explicit DecodeBuffers(SlabMemory memory = {}) : memory_(std::move(memory)) {}

 private:
  friend class UnitDecoder;
  struct OfSlab {
    SlabBuffer<std::uint8_t> encoded_exponent, gaps, sign_mantissa;
    SlabBuffer<std::uint32_t> positions;
    SlabBuffer<std::uint16_t> weights, source;
  };

  SlabMemory memory_;
  std::deque<OfSlab> slabs_;
};

class UnitDecoder {
 public:
  /// Weights in order, slab after slab, without holes.
  using OnWeights = std::function<void(std::uint64_t first_weight, std::span<const std::uint16_t> weights)>;
  /// Called after each slab that is well, with its number of weights.
  using OnSlab = std::function<void(std::uint64_t num_weights)>;

  // 256 chunks are 1 MiB of bitstream; with sign_mantissa and 16-bit weights about 10 MB at 2.7 bits a code
  // and 26 MB at one bit.
  static constexpr std::uint64_t kDefaultSlabChunks = 256;
  /// What suits a unit of so many chunks: shorter slabs where several are under way, so that a short unit is
  /// several slabs too.
  static std::uint64_t slab_chunks_for(std::uint64_t num_chunks, const df11::Df11DecodeStage& stage);

  /// All that is given must outlive the object. slab_chunks: 1 or more.
  UnitDecoder(const UnitSizes& sizes, const UnitBytes& bytes, df11::Df11DecodeStage& stage,
              DecodeBuffers& buffers, std::uint64_t slab_chunks = kDefaultSlabChunks);

  // Each returns the first fault in the order of the stream; nothing: there is none. What stage, bytes,
  // source and callbacks throw goes through, unless it comes of reading ahead and a fault is found before it.
  // Then, too, no slab is under way any more.

  /// All weights. Those of a slab with a fault are not given.
  std::optional<UnitFault> decode(const OnWeights& on_weights);
  /// All weights against the source, which must have as many.
  std::optional<UnitFault> compare(WeightSource& source, const OnSlab& on_slab = {});
  /// All but the weights: codes, gaps, output positions, the stream's end.
  std::optional<UnitFault> check_lengths(const OnSlab& on_slab = {});
  /// The chunks [first, end) against the source. Where the chunks before were compared too, this proves as
  /// much as compare().
  std::optional<UnitFault> compare_chunks(std::uint64_t first, std::uint64_t end, WeightSource& source,
                                          const OnSlab& on_slab = {});

  // Of the chunks decoded so far.

  /// The first weight after the last of them; 0 if there are none yet.
  std::uint64_t end_weight() const { return end_weight_; }
  /// False: the official kernel would not end (told once the last chunk was decoded without a fault).
  bool kernel_ends() const { return kernel_ends_; }
  /// The most weights in a chunk.
  std::uint64_t densest_chunk() const { return densest_chunk_; }

 private:
  struct Slab {
    std::uint64_t first_chunk = 0;
    std::uint64_t num_chunks = 0;
    std::span<const std::uint32_t> positions;
    DecodeBuffers::OfSlab* buffers = nullptr;
  };
  struct SlabUnderWay {
    Slab slab;
    df11::DecodeArguments arguments;
    df11::DecodeCompletion completion;
  };
  enum class Wanted : std::uint8_t { kLengths, kComparison, kWeights };

  class Run;

  std::optional<UnitFault> run(std::uint64_t first, std::uint64_t end, Wanted wanted, WeightSource* source,
                               const OnWeights& on_weights, const OnSlab& on_slab);
  Slab read_positions(std::uint64_t first, std::uint64_t count, DecodeBuffers::OfSlab& buffers);
  std::uint64_t num_sound_chunks(const Slab& slab, const WeightSource* source) const;
  df11::DecodeArguments read_slab(const Slab& slab, Wanted wanted, WeightSource* source);
  void note(const Slab& slab, const df11::DecodeStatus& status);
  UnitFault locate(std::uint64_t chunk, WeightSource* source) const;

  const UnitSizes sizes_;
  const UnitBytes& bytes_;
  df11::Df11DecodeStage& stage_;
  DecodeBuffers& buffers_;
  const std::uint64_t slab_chunks_;
  std::vector<std::uint8_t> luts_;
  bool kernel_ends_ = true;
  std::uint64_t densest_chunk_ = 0;
  std::uint64_t end_weight_ = 0;
};

}  // namespace weightpress::job
