#include "job/tile_ans_journal.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/json_writer.h"
#include "model/tile_ans_header.h"

namespace weightpress::job {
namespace {

using model::JsonWriter;
using nlohmann::json;

constexpr const char* kPlannedKey = "tile_ans_planned";
constexpr const char* kKeptKey = "tile_ans_kept";
constexpr const char* kWrittenKey = "tile_ans_written";

std::string take_line(JsonWriter&& line) {
  std::string text = std::move(line).take();
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string line_of(const char* key, std::string_view tensor) {
  JsonWriter line;
  line.begin_object(JsonWriter::Style::kOneLine).member(key, tensor).end_object();
  return take_line(std::move(line));
}

template <class T>
T number_of(const json& value) {
  const std::uint64_t number = value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
  if (!value.is_number_unsigned() || number > std::numeric_limits<T>::max())
    throw std::invalid_argument("number");
  return static_cast<T>(number);
}

template <class T>
std::vector<T> numbers_of(const json& values) {
  if (!values.is_array()) throw std::invalid_argument("list");
  std::vector<T> numbers;
  for (const json& value : values) numbers.push_back(number_of<T>(value));
  return numbers;
}

}  // namespace

std::string planned_tile_ans_line(std::string_view tensor, const PlannedTileAns& planned) {
  const tile_ans::TensorPlan& plan = planned.plan;
  const std::uint32_t num_lanes = plan.layout.num_lanes;
  JsonWriter line;
  line.begin_object(JsonWriter::Style::kOneLine).member(kPlannedKey, tensor);
  line.member("bits", plan.layout.probability_bits).key("modes").begin_array();
  for (std::uint32_t l = 0; l < num_lanes; ++l) line.value(static_cast<unsigned>(plan.lanes[l].mode));
  line.end_array().key("words").begin_array();
  for (std::uint32_t l = 0; l < num_lanes; ++l) line.value(planned.lane_words[l]);
  line.end_array().key("frequencies").begin_array();
  for (std::uint32_t l = 0; l < num_lanes; ++l)
    for (const std::uint16_t frequency : plan.lanes[l].frequencies) line.value(frequency);
  line.end_array().end_object();
  return take_line(std::move(line));
}

std::string kept_tile_ans_line(std::string_view tensor) {
  return line_of(kKeptKey, tensor);
}

std::string written_tile_ans_line(std::string_view tensor) {
  return line_of(kWrittenKey, tensor);
}

bool TileAnsPastRun::add(std::string_view text) {
  const json line = json::parse(text, nullptr, false);
  if (!line.is_object()) return false;
  try {
    if (line.contains(kKeptKey)) {
      const auto tensor = line.at(kKeptKey).get<std::string>();
      kept_.insert(tensor);
      planned_.erase(tensor);
    } else if (line.contains(kWrittenKey)) {
      written_.insert(line.at(kWrittenKey).get<std::string>());
    } else {
      const auto tensor = line.at(kPlannedKey).get<std::string>();
      planned_[tensor] = {
          number_of<std::uint32_t>(line.at("bits")), numbers_of<std::uint8_t>(line.at("modes")),
          numbers_of<std::uint64_t>(line.at("words")), numbers_of<std::uint16_t>(line.at("frequencies"))};
      kept_.erase(tensor);
    }
  } catch (const std::exception&) {  // not what it should be
    return false;
  }
  return true;
}

std::optional<PlannedTileAns> TileAnsPastRun::planned(const tile_ans::Settings& settings,
                                                      const model::SourceTensor& tensor) const {
  const auto found = planned_.find(tensor.name);
  if (found == planned_.end()) return std::nullopt;
  const Planned& past = found->second;
  PlannedTileAns planned;
  tile_ans::Layout& layout = planned.plan.layout;
  layout = layout_before_plan(settings, tensor);
  layout.probability_bits = past.probability_bits;
  const std::size_t num_lanes = layout.num_lanes;
  if (past.probability_bits < tile_ans::kMinProbabilityBits ||
      past.probability_bits > tile_ans::kMaxProbabilityBits || past.modes.size() != num_lanes ||
      past.words.size() != num_lanes || past.frequencies.size() != num_lanes * tile_ans::kNumSymbols) {
    return std::nullopt;
  }
  // For what has no states there is no room for them.
  const bool has_only_raw_lanes =
      tile_ans::effective_threshold(settings.raw_lane_threshold, layout.tile_elements) <= 0;
  for (std::size_t l = 0; l < num_lanes; ++l) {
    if (past.modes[l] > 1 || past.words[l] > layout.num_elements) return std::nullopt;
    if (past.modes[l] == 0 && has_only_raw_lanes) return std::nullopt;
    tile_ans::LanePlan& lane = planned.plan.lanes[l];
    lane.mode = static_cast<tile_ans::LaneMode>(past.modes[l]);
    std::copy_n(past.frequencies.begin() + static_cast<std::ptrdiff_t>(l * tile_ans::kNumSymbols),
                tile_ans::kNumSymbols, lane.frequencies.begin());
    const std::uint64_t sum =
        std::accumulate(lane.frequencies.begin(), lane.frequencies.end(), std::uint64_t{0});
    if (sum != layout.table_size()) return std::nullopt;
    planned.lane_words[l] = past.words[l];
  }
  if (planned.payload_words() >= tile_ans::kPayloadWordsLimit) return std::nullopt;
  planned.header = model::write_tile_ans_header({.dtype = tensor.dtype, .shape = tensor.shape});
  return planned;
}

}  // namespace weightpress::job
