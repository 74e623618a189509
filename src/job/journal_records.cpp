#include "job/journal_records.h"

#include <charconv>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "job/block_hash.h"
#include "model/json_writer.h"

namespace weightpress::job {
namespace {

using model::JsonWriter;
using nlohmann::json;

JsonWriter begin(const char* key, std::string_view name) {
  JsonWriter line;
  line.begin_object(JsonWriter::Style::kOneLine).member(key, name);
  return line;
}

std::string finish(JsonWriter& line) {
  line.end_object();
  std::string text = std::move(line).take();
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// The library's own conversions round, wrap and take true for 1.
std::uint64_t number_of(const json& value) {
  if (!value.is_number_unsigned()) throw std::invalid_argument("number");
  return value.get<std::uint64_t>();
}

std::uint64_t hash_of(const json& value) {
  const auto& text = value.get_ref<const std::string&>();
  std::uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc() || end != text.data() + text.size()) throw std::invalid_argument("hash");
  return hash;
}

void write_cast(JsonWriter& line, const model::CastCounts& cast) {
  line.key("cast").begin_array();
  line.value(cast.changed).value(cast.overflowed).value(cast.flushed_to_zero).end_array();
}

model::CastCounts parse_cast(const json& cast) {
  return {number_of(cast.at(0)), number_of(cast.at(1)), number_of(cast.at(2))};
}

PlannedRecord parse_planned(const json& line) {
  PlannedRecord record;
  for (const json& entry : line.at("histogram").get_ref<const json::array_t&>()) {
    const std::uint64_t symbol = number_of(entry.at(0));
    if (symbol >= df11::kNumSymbols) throw std::invalid_argument("symbol");
    record.counts.histogram.emplace_back(static_cast<std::uint8_t>(symbol), number_of(entry.at(1)));
  }
  const std::uint64_t last_exponent = number_of(line.at("last_exponent"));
  if (last_exponent >= df11::kNumSymbols) throw std::invalid_argument("exponent");
  record.counts.last_exponent = static_cast<std::uint8_t>(last_exponent);
  for (const json& densest : line.at("densest_chunks").get_ref<const json::array_t&>())
    record.counts.densest_chunks.push_back(number_of(densest));
  record.cast = parse_cast(line.at("cast"));
  record.source_hash = hash_of(line.at("source_xxh3"));
  return record;
}

WrittenRecord parse_written(const json& line) {
  return {.file = line.at("file").get<std::string>(),
          .offset_bytes = number_of(line.at("offset")),
          .size_bytes = number_of(line.at("bytes")),
          .num_tables = number_of(line.at("tables")),
          .output_hash = hash_of(line.at("xxh3")),
          .verified = line.at("verified").get<bool>()};
}

}  // namespace

std::string planned_line(std::string_view unit, const PlannedRecord& record) {
  JsonWriter line = begin("planned", unit);
  line.key("histogram").begin_array();
  for (const auto& [symbol, count] : record.counts.histogram)
    line.begin_array().value(symbol + 0).value(count).end_array();
  line.end_array()
      .member("last_exponent", record.counts.last_exponent + 0)
      .key("densest_chunks")
      .begin_array();
  for (const std::uint64_t densest : record.counts.densest_chunks) line.value(densest);
  line.end_array();
  write_cast(line, record.cast);
  line.member("source_xxh3", hex16(record.source_hash));
  return finish(line);
}

std::string kept_line(std::string_view unit, std::string_view reason) {
  JsonWriter line = begin("kept", unit);
  line.member("reason", reason);
  return finish(line);
}

std::string written_line(std::string_view unit, const WrittenRecord& record) {
  JsonWriter line = begin("written", unit);
  line.member("file", record.file).member("offset", record.offset_bytes).member("bytes", record.size_bytes);
  line.member("tables", record.num_tables).member("xxh3", hex16(record.output_hash));
  line.member("verified", record.verified);
  return finish(line);
}

std::string copied_line(std::string_view tensor, const CopiedRecord& record) {
  JsonWriter line = begin("copied", tensor);
  line.member("file", record.file).member("xxh3", hex16(record.output_hash));
  write_cast(line, record.cast);
  return finish(line);
}

bool PastRun::add(std::string_view text) {
  try {
    const json line = json::parse(text);
    if (line.contains("planned")) {
      planned_[line["planned"]] = parse_planned(line);
    } else if (line.contains("kept")) {
      kept_[line["kept"]] = line.at("reason").get<std::string>();
    } else if (line.contains("written")) {
      written_[line["written"]] = parse_written(line);
    } else if (line.contains("copied")) {
      copied_[{line.at("file"), line["copied"]}] = {line.at("file"), hash_of(line.at("xxh3")),
                                                    parse_cast(line.at("cast"))};
    } else {
      return false;
    }
    return true;
  } catch (const std::exception&) {  // not JSON, not what it should be
    return false;
  }
}

const CopiedRecord* PastRun::copied(const std::string& file, const std::string& tensor) const {
  const auto found = copied_.find({file, tensor});
  return found == copied_.end() ? nullptr : &found->second;
}

}  // namespace weightpress::job
