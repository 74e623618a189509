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
  return {cast.at(0).get<std::uint64_t>(), cast.at(1).get<std::uint64_t>(), cast.at(2).get<std::uint64_t>()};
}

PlannedRecord parse_planned(const json& line) {
  PlannedRecord record;
  for (const json& entry : line.at("histogram")) {
    const auto symbol = entry.at(0).get<std::uint64_t>();
    if (symbol >= df11::kNumSymbols) throw std::out_of_range("symbol");
    record.counts.histogram.emplace_back(static_cast<std::uint8_t>(symbol), entry.at(1).get<std::uint64_t>());
  }
  record.counts.last_exponent = line.at("last_exponent").get<std::uint8_t>();
  record.counts.densest_chunks = line.at("densest_chunks").get<std::vector<std::uint64_t>>();
  record.cast = parse_cast(line.at("cast"));
  record.source_hash = hash_of(line.at("source_xxh3"));
  return record;
}

WrittenRecord parse_written(const json& line) {
  return {.file = line.at("file").get<std::string>(),
          .offset_bytes = line.at("offset").get<std::uint64_t>(),
          .size_bytes = line.at("bytes").get<std::uint64_t>(),
          .num_tables = line.at("tables").get<std::uint64_t>(),
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
