#include "cli/inspect_json.h"

#include <cstdint>
#include <utility>

#include "model/json_writer.h"

namespace weightpress::cli {
namespace {

using model::JsonWriter;

void write_files(JsonWriter& json, const InspectReport& report) {
  json.key("files").begin_array();
  for (const InspectedFile& file : report.files) {
    json.begin_object().member("name", file.name).member("bytes", file.size_bytes);
    json.member("tensors", file.num_tensors).member("metadata", file.has_metadata).end_object();
  }
  json.end_array().member("file_bytes", report.file_bytes());
}

void write_dtypes(JsonWriter& json, const char* key, const InspectReport& report) {
  json.key(key).begin_object();
  for (const DtypeTotal& total : report.tensors) {
    json.key(total.dtype).begin_object().member("tensors", total.num_tensors);
    json.member("elements", total.num_elements).member("bytes", total.size_bytes).end_object();
  }
  json.end_object();
}

void write_unit(JsonWriter& json, const InspectedUnit& unit) {
  json.begin_object().member("name", unit.name).member("weights", unit.num_weights);
  json.member("tensors", unit.num_tensors).member("bytes", unit.size_bytes);
  json.member("bits_per_weight", unit.bits_per_weight()).member("tables", unit.num_tables);
  json.member("shortest_code", unit.shortest_code_bits).member("longest_code", unit.longest_code_bits);
  json.member("exponents", unit.num_exponents).end_object();
}

void write_record(JsonWriter& json, const InspectReport& report) {
  const InspectedRecord none;
  const InspectedRecord& record = report.record ? *report.record : none;
  json.key("record");
  if (report.record) {
    json.begin_object().member("file", record.file).member("weightpress", record.weightpress);
    json.member("definition", record.definition).member("format_version", record.format_version);
    json.member("patterns", record.num_patterns).member("layout", record.layout).end_object();
  } else {
    json.raw("null");
  }
  json.key("kept_units").begin_array();
  for (const InspectedRecord::KeptUnit& kept : record.kept_units)
    json.begin_object().member("unit", kept.unit).member("reason", kept.reason).end_object();
  json.end_array().key("own_coding").begin_array();
  for (const InspectedRecord::OwnCoding& own : record.own_coding) {
    json.begin_object().member("unit", own.unit).key("reasons").begin_array();
    for (const std::string& reason : own.reasons) json.value(reason);
    json.end_array().end_object();
  }
  json.end_array();
}

void write_df11(JsonWriter& json, const InspectReport& report) {
  const std::uint64_t weights = report.num_weights();
  json.key("units").begin_array();
  for (const InspectedUnit& unit : report.units) write_unit(json, unit);
  json.end_array().member("weights", weights).member("unit_bytes", report.unit_bytes());
  json.member("bits_per_weight", 8 * static_cast<double>(report.unit_bytes()) / static_cast<double>(weights));
  write_dtypes(json, "kept", report);
  json.member("kept_bytes", report.tensor_bytes()).member("bf16_bytes", report.bf16_bytes());
  json.member("ratio", report.ratio());
  write_record(json, report);
  json.key("config");
  if (report.config) {
    json.begin_object().member("version", report.config->version);
    json.member("patterns", report.config->num_patterns).end_object();
  } else {
    json.raw("null");
  }
}

void write_tile_ans(JsonWriter& json, const InspectReport& report) {
  json.key("containers").begin_array();
  for (const InspectedTileAns& tensor : report.tile_ans) {
    json.begin_object().member("name", tensor.name).member("dtype", tensor.dtype);
    json.key("shape").begin_array();
    for (const std::uint64_t size : tensor.shape) json.value(size);
    json.end_array().member("elements", tensor.num_elements);
    json.member("source_bytes", tensor.source_bytes).member("bytes", tensor.size_bytes);
    json.member("bits_per_element", tensor.bits_per_element()).member("raw_container", tensor.is_raw);
    json.member("tile_elements", tensor.tile_elements).member("probability_bits", tensor.probability_bits);
    json.member("lanes", tensor.num_lanes).member("raw_lanes", tensor.num_raw_lanes).end_object();
  }
  json.end_array();
  write_dtypes(json, "kept", report);
  json.member("kept_bytes", report.tensor_bytes());
}

void write_source(JsonWriter& json, const InspectReport& report) {
  write_dtypes(json, "tensors", report);
  json.member("tensor_bytes", report.tensor_bytes()).key("source");
  if (report.source) {
    json.begin_object().member("definition", report.source->definition);
    json.member("units", report.source->num_units);
    json.member("unit_weights", report.source->unit_weights).end_object();
  } else {
    json.raw("null");
  }
}

}  // namespace

std::string inspect_json(const InspectReport& report, const std::string& path) {
  JsonWriter json(JsonWriter::Encoding::kAscii);
  json.begin_object(JsonWriter::Style::kOneLine).member("path", path);
  json.member("kind", report.is_df11() ? "df11" : report.is_tile_ans() ? "tile-ans" : "safetensors");
  write_files(json, report);
  if (report.is_df11()) {
    write_df11(json, report);
  } else if (report.is_tile_ans()) {
    write_tile_ans(json, report);
  } else {
    write_source(json, report);
  }
  json.key("notes").begin_array();
  for (const std::string& note : report.notes) json.value(note);
  json.end_array().end_object();
  return std::move(json).take();
}

}  // namespace weightpress::cli
