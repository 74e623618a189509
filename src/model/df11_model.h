// The DF11 units of a model: which tensors are their buffers, and what the small ones say.
//
// Units are found by name: `<unit>.luts` and five more (docs/format.md, "Buffers of a unit"), in any files
// and any grouping, of any maker. The bytes are a stranger's, so dtypes, shapes and sizes are checked against
// each other here, once: afterwards every number of a StoredUnit is true and a decoder may size its memory by
// it. What the large buffers hold (tables, bitstream, sign_mantissa, gaps, output_positions) is not looked
// at.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/df11_constants.h"
#include "format/result.h"
#include "model/checkpoint.h"

namespace weightpress::model {

enum class Df11Buffer : std::uint8_t {
  kLuts,
  kEncodedExponent,
  kSignMantissa,
  kOutputPositions,
  kGaps,
  kSplitPositions
};
inline constexpr std::size_t kNumDf11Buffers = static_cast<std::size_t>(Df11Buffer::kSplitPositions) + 1;

/// What follows the unit's name and a dot in the name of the tensor, e.g. "encoded_exponent".
std::string_view df11_buffer_name(Df11Buffer buffer);

/// Most tensors a unit may have: far above any model's (hundreds), small enough to keep the lists of all
/// units in memory.
inline constexpr std::uint64_t kMaxUnitTensors = std::uint64_t{1} << 16;

struct StoredUnit {
  std::string name;
  std::array<std::size_t, kNumDf11Buffers> buffers{};  ///< indices of tensors, in the order of Df11Buffer
  std::uint64_t size_bytes = 0;                        ///< of the six buffers

  std::uint64_t num_weights = 0;    ///< 1 to 2^32 - 1: output positions are 32-bit numbers
  std::uint64_t stream_bytes = 0;   ///< at least 1; fits the number of weights and the code lengths
  std::uint64_t num_chunks = 0;     ///< of the bitstream, the last one may be shorter
  std::uint64_t num_positions = 0;  ///< num_chunks + 1, or num_chunks ("Output positions")
  std::uint64_t num_tables = 0;     ///< at least 1; no loader takes more than df11::kMaxTables
  /// Last row of the tables. At most 32 bits, 0 from exponent 240 on, not all 0, and a prefix code has them.
  std::array<std::uint8_t, df11::kNumSymbols> code_lengths{};
  /// Where the unit's tensors meet, in weights: ascending (equal where a tensor is empty), within the unit.
  std::vector<std::uint64_t> split_positions;

  std::size_t buffer(Df11Buffer which) const { return buffers[static_cast<std::size_t>(which)]; }
  std::uint64_t num_tensors() const { return split_positions.size() + 1; }
};

struct Df11Model {
  std::vector<StoredUnit> units;  ///< by name with numbers counted ("9" before "10")
  std::vector<std::size_t> kept;  ///< indices of tensors that belong to no unit, ascending
};

/// All units of a model, sound or not.
struct Df11Survey {
  Df11Model model;  ///< the units that are sound
  /// Of the others, by name with numbers counted: kCorruptFile, naming file, unit and buffer.
  std::vector<ErrorDetails> broken;
};

/// A model without units is not an error. Two of a unit's six tensors make a unit, so that the lack of one is
/// noticed. Throws what Checkpoint::read throws.
Df11Survey survey_df11_model(const Checkpoint& checkpoint);

/// The same; an error if a unit is broken.
Result<Df11Model> read_df11_model(const Checkpoint& checkpoint);

}  // namespace weightpress::model
