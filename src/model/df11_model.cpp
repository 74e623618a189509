#include "model/df11_model.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "model/natural_order.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

// In the order of Df11Buffer.
constexpr std::array<std::string_view, kNumDf11Buffers> kBufferNames = {
    "luts", "encoded_exponent", "sign_mantissa", "output_positions", "gaps", "split_positions"};

constexpr std::uint64_t kPositionBytes = 4;
constexpr std::uint64_t kMaxStoredWeights = std::numeric_limits<std::uint32_t>::max();

// split_positions are read as they lie in the file, which is little-endian.
static_assert(std::endian::native == std::endian::little);

using FoundBuffers = std::array<std::optional<std::size_t>, kNumDf11Buffers>;

// The checks of one unit, in the order in which each relies on those before.
class UnitReader {
 public:
  UnitReader(const Checkpoint& checkpoint, std::string_view name) : checkpoint_(checkpoint) {
    unit_.name = name;
  }

  Result<StoredUnit> read(const FoundBuffers& found) {
    if (auto complete = take_buffers(found); !complete) return Unexpected(std::move(complete.error()));
    using Step = Result<void> (UnitReader::*)();
    for (const Step step : {Step{&UnitReader::check_shapes}, Step{&UnitReader::read_code_lengths},
                            Step{&UnitReader::check_sizes}, Step{&UnitReader::read_split_positions}}) {
      if (auto result = (this->*step)(); !result) return Unexpected(std::move(result.error()));
    }
    return std::move(unit_);
  }

 private:
  const SourceTensor& tensor(Df11Buffer buffer) const { return checkpoint_.tensors()[unit_.buffer(buffer)]; }

  Unexpected corrupt(const SourceTensor& file_of, Df11Buffer buffer, const std::string& what) const {
    const std::string name(df11_buffer_name(buffer));
    return Unexpected(
        ErrorDetails{.code = ErrorCode::kCorruptFile,
                     .message = printable(checkpoint_.files()[file_of.file_index].path().native()) +
                                ": unit " + in_quotes(unit_.name) + ": buffer " + name + " " + what,
                     .unit = unit_.name,
                     .tensor = unit_.name + "." + name});
  }
  Unexpected damaged(Df11Buffer buffer, const std::string& what) const {
    return corrupt(tensor(buffer), buffer,
                   what + "; the file is damaged or was not made by a DF11 compressor");
  }

  Result<void> take_buffers(const FoundBuffers& found) {
    const auto present = std::ranges::find_if(found, [](const auto& index) { return index.has_value(); });
    for (std::size_t i = 0; i < kNumDf11Buffers; ++i) {
      if (!found[i]) {
        return corrupt(checkpoint_.tensors()[**present], static_cast<Df11Buffer>(i),
                       "is missing, here and in the other files given: download or make them again");
      }
      unit_.buffers[i] = *found[i];
      unit_.size_bytes += checkpoint_.tensors()[*found[i]].size_bytes;
    }
    return {};
  }

  Result<void> check_shapes() {
    for (std::size_t i = 0; i < kNumDf11Buffers; ++i) {
      const auto buffer = static_cast<Df11Buffer>(i);
      const SourceTensor& stored = tensor(buffer);
      const bool is_table = buffer == Df11Buffer::kLuts;
      const Dtype dtype = buffer == Df11Buffer::kSplitPositions ? Dtype::kI64 : Dtype::kU8;
      const bool right_shape =
          is_table ? stored.shape.size() == 2 && stored.shape[0] >= 2 && stored.shape[1] == df11::kNumSymbols
                   : stored.shape.size() == 1;
      if (stored.dtype == dtype && right_shape) continue;
      return damaged(buffer,
                     "is " + std::string(dtype_name(stored.dtype)) + " " + shape_text(stored.shape) +
                         ", but must be " + std::string(dtype_name(dtype)) +
                         (is_table ? " [tables + 1, 256] with a table at least" : " of one dimension"));
    }
    unit_.num_tables = tensor(Df11Buffer::kLuts).shape[0] - 1;
    unit_.num_weights = tensor(Df11Buffer::kSignMantissa).size_bytes;
    unit_.stream_bytes = tensor(Df11Buffer::kEncodedExponent).size_bytes;
    return {};
  }

  Result<void> read_code_lengths() {
    auto& lengths = unit_.code_lengths;
    checkpoint_.read(tensor(Df11Buffer::kLuts), unit_.num_tables * lengths.size(), lengths.size(),
                     lengths.data());
    std::uint64_t used = 0;  // of the 2^32 bit strings of 32 bits: what the codes begin
    for (std::size_t exponent = 0; exponent < lengths.size(); ++exponent) {
      const unsigned length = lengths[exponent];
      if (length == 0) continue;
      const std::string claim = "says that the code of exponent " + std::to_string(exponent) + " has " +
                                std::to_string(length) + " bits";
      if (exponent >= df11::kFirstPointer)
        return damaged(Df11Buffer::kLuts, claim + ", but exponents from 240 on cannot have a code");
      if (length > df11::kMaxCodeBits)
        return damaged(Df11Buffer::kLuts, claim + ", but codes have 32 at most");
      used += std::uint64_t{1} << (df11::kMaxCodeBits - length);
    }
    if (used == 0) return damaged(Df11Buffer::kLuts, "holds no code length in its last row");
    if (used > std::uint64_t{1} << df11::kMaxCodeBits)
      return damaged(Df11Buffer::kLuts, "holds code lengths that no prefix code has in its last row");
    return {};
  }

  Result<void> check_sizes() {
    const auto bytes = [](std::uint64_t count) { return std::to_string(count) + " bytes"; };
    if (unit_.num_weights == 0) return damaged(Df11Buffer::kSignMantissa, "is empty: a unit has weights");
    if (unit_.num_weights > kMaxStoredWeights) {
      return damaged(Df11Buffer::kSignMantissa, "is for " + std::to_string(unit_.num_weights) +
                                                    " weights, but positions of 32 bits end at " +
                                                    std::to_string(kMaxStoredWeights));
    }
    // At most 2^32 weights of 32 bits: neither product comes near 64 bits.
    const auto [shortest, longest] = code_length_range();
    const std::uint64_t least_bytes = (unit_.num_weights * shortest + 7) / 8;
    const std::uint64_t most_bytes = (unit_.num_weights * longest + 7) / 8;
    if (unit_.stream_bytes < least_bytes || unit_.stream_bytes > most_bytes) {
      return damaged(Df11Buffer::kEncodedExponent,
                     "has " + bytes(unit_.stream_bytes) + ", but " + std::to_string(unit_.num_weights) +
                         " codes of " + std::to_string(shortest) + " to " + std::to_string(longest) +
                         " bits take " + std::to_string(least_bytes) + " to " + bytes(most_bytes));
    }
    unit_.num_chunks = (unit_.stream_bytes + df11::kChunkBytes - 1) / df11::kChunkBytes;

    const std::uint64_t gaps_bytes = unit_.num_chunks * df11::kGapBytesPerChunk;
    if (const std::uint64_t stored = tensor(Df11Buffer::kGaps).size_bytes; stored != gaps_bytes) {
      return damaged(Df11Buffer::kGaps, "has " + bytes(stored) + ", but those of " +
                                            std::to_string(unit_.num_chunks) + " chunks take " +
                                            bytes(gaps_bytes));
    }
    const std::uint64_t positions_bytes = tensor(Df11Buffer::kOutputPositions).size_bytes;
    unit_.num_positions = positions_bytes / kPositionBytes;
    // The entry that may lack is that of a last chunk which no code starts in; one starts in the first.
    const bool may_lack_one = unit_.num_chunks > 1;
    if (positions_bytes % kPositionBytes != 0 || unit_.num_positions > unit_.num_chunks + 1 ||
        unit_.num_positions < unit_.num_chunks + (may_lack_one ? 0 : 1)) {
      return damaged(Df11Buffer::kOutputPositions, "has " + bytes(positions_bytes) + ", but those of " +
                                                       std::to_string(unit_.num_chunks) + " chunks take " +
                                                       bytes((unit_.num_chunks + 1) * kPositionBytes) +
                                                       (may_lack_one ? " or 4 less" : ""));
    }
    return {};
  }

  std::pair<std::uint64_t, std::uint64_t> code_length_range() const {
    std::uint64_t shortest = df11::kMaxCodeBits, longest = 0;
    for (const std::uint64_t length : unit_.code_lengths) {
      if (length == 0) continue;
      shortest = std::min(shortest, length);
      longest = std::max(longest, length);
    }
    return {shortest, longest};
  }

  Result<void> read_split_positions() {
    const SourceTensor& stored = tensor(Df11Buffer::kSplitPositions);
    const std::uint64_t count = stored.shape[0];
    if (count >= kMaxUnitTensors) {
      return damaged(Df11Buffer::kSplitPositions,
                     "splits the unit into " + std::to_string(count) + " tensors and one; more than " +
                         std::to_string(kMaxUnitTensors) + " are none of a model");
    }
    unit_.split_positions.resize(count);
    checkpoint_.read(stored, 0, stored.size_bytes, unit_.split_positions.data());
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t position = unit_.split_positions[i];  // a negative one is a huge one here
      if (position < last || position > unit_.num_weights) {
        return damaged(Df11Buffer::kSplitPositions,
                       "has " + std::to_string(static_cast<std::int64_t>(position)) + " as entry " +
                           std::to_string(i) + ", which must lie between the entry before (" +
                           std::to_string(last) + ") and the number of weights (" +
                           std::to_string(unit_.num_weights) + ")");
      }
      last = position;
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  StoredUnit unit_;
};

// The unit and the buffer that a tensor's name speaks of.
std::optional<std::pair<std::string_view, std::size_t>> split_name(std::string_view tensor) {
  const std::size_t dot = tensor.rfind('.');
  if (dot == tensor.npos || dot == 0) return std::nullopt;
  const auto found = std::ranges::find(kBufferNames, tensor.substr(dot + 1));
  if (found == kBufferNames.end()) return std::nullopt;
  return std::pair(tensor.substr(0, dot), static_cast<std::size_t>(found - kBufferNames.begin()));
}

}  // namespace

std::string_view df11_buffer_name(Df11Buffer buffer) {
  return kBufferNames[static_cast<std::size_t>(buffer)];
}

Df11Survey survey_df11_model(const Checkpoint& checkpoint) {
  const std::vector<SourceTensor>& tensors = checkpoint.tensors();
  std::map<std::string_view, FoundBuffers, decltype(&natural_less)> found(&natural_less);
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (const auto name = split_name(tensors[t].name)) found[name->first][name->second] = t;
  // One tensor with such a name is no unit that lacks five.
  std::erase_if(found, [](const auto& entry) {
    return std::ranges::count_if(entry.second, [](const auto& index) { return index.has_value(); }) < 2;
  });

  Df11Survey survey;
  Df11Model& model = survey.model;
  std::vector<bool> is_buffer(tensors.size(), false);
  for (const auto& [name, buffers] : found) {
    auto unit = UnitReader(checkpoint, name).read(buffers);
    for (const auto& index : buffers)
      if (index) is_buffer[*index] = true;
    if (unit) {
      model.units.push_back(std::move(*unit));
    } else {
      survey.broken.push_back(std::move(unit.error()));
    }
  }
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (!is_buffer[t]) model.kept.push_back(t);
  return survey;
}

Result<Df11Model> read_df11_model(const Checkpoint& checkpoint) {
  Df11Survey survey = survey_df11_model(checkpoint);
  if (!survey.broken.empty()) return Unexpected(std::move(survey.broken.front()));
  return std::move(survey.model);
}

}  // namespace weightpress::model
