// Reads a unit back while it is written, and compares it with the source: slab by slab, whole chunks only.
//
// What a slab leaves of an unfinished chunk is carried on: its weights (at most those of two chunks). Its
// bits are read again from where they were written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format/unit_plan.h"
#include "job/unit_decoder.h"

namespace weightpress::job {

class UnitVerifier {
 public:
  /// bytes: what was written. All that is given must outlive the object.
  UnitVerifier(const df11::UnitPlan& plan, const UnitBytes& bytes, df11::Df11DecodeStage& stage,
               DecodeBuffers& buffers, std::uint64_t slab_chunks = UnitDecoder::kDefaultSlabChunks);

  /// The weights of the next slab, whose pieces are among what was written. Returns what is wrong.
  std::optional<UnitFault> add(std::span<const std::uint16_t> weights, const WrittenSoFar& written);

 private:
  /// The weights that were carried on, and then those of the slab.
  class Weights final : public WeightSource {
   public:
    explicit Weights(std::uint64_t num_weights) : num_weights_(num_weights) {}

    std::uint64_t num_weights() const override { return num_weights_; }
    WeightRange readable() const override { return {first_, end()}; }
    void read(std::uint64_t first, std::span<std::uint16_t> weights) override;
    std::span<const std::uint16_t> in_memory(std::uint64_t first, std::uint64_t count) override;

    void add(std::span<const std::uint16_t> slab);
    /// Forgets the weights before `first`, and copies what the slab holds from there on.
    void carry_on(std::uint64_t first);
    std::uint64_t end() const { return first_ + carried_.size() + slab_.size(); }

   private:
    std::uint64_t num_weights_;
    std::uint64_t first_ = 0;  // of the carried ones
    std::vector<std::uint16_t> carried_;
    std::span<const std::uint16_t> slab_;
  };

  std::optional<UnitFault> check_unreached() const;
  std::uint64_t num_complete_chunks(const WrittenSoFar& written) const;

  const df11::UnitPlan& plan_;
  const UnitSizes sizes_;
  const UnitBytes& bytes_;
  UnitDecoder decoder_;
  Weights weights_;
  std::uint64_t chunks_done_ = 0;
};

}  // namespace weightpress::job
