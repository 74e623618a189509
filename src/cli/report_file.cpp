#include "cli/report_file.h"

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "job/energy_meter.h"
#include "job/machine_info.h"
#include "job/output_record.h"
#include "model/architectures.h"
#include "model/file.h"
#include "model/json_writer.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

namespace fs = std::filesystem;
using model::JsonWriter;
constexpr JsonWriter::Style kOneLine = JsonWriter::Style::kOneLine;

void begin(JsonWriter& json, const char* status) {
  json.begin_object()
      .member("weightpress", WP_VERSION)
      .member("command", "compress")
      .member("status", status);
}

const char* verifier_name(Verifier verifier) {
  switch (verifier) {
    case Verifier::kOwn:
      return "own";
    case Verifier::kOfficial:
      return "official";
    case Verifier::kAuto:
      break;
  }
  return "auto";
}

void write_tile_ans_options(JsonWriter& json, const TileAnsOptions& options) {
  json.member("tile-elements", options.tile_elements).member("probability-bits", options.probability_bits);
  json.member("raw-lane-threshold", options.raw_lane_threshold);
  const auto write_list = [&](const char* key, const std::vector<std::string>& texts) {
    json.key(key).begin_array(kOneLine);
    for (const std::string& text : texts) json.value(text);
    json.end_array();
  };
  write_list("include", options.include);
  write_list("exclude", options.exclude);
  write_list("dtype", options.dtypes);
}

void write_options(JsonWriter& json, const ReportInput& input) {
  const CompressOptions& options = input.options;
  json.key("options").begin_object();
  json.member("source", options.source.string()).member("output", options.output.string());
  const bool is_tile_ans = options.format == Format::kTileAns;
  json.member("format", is_tile_ans ? "tile-ans" : "df11");
  if (is_tile_ans) write_tile_ans_options(json, options.tile_ans);
  json.member("arch", options.arch).member("layout", options.layout).member("device", input.device);
  json.member("threads", options.num_threads).member("fast", input.fast);
  json.member("luts", options.luts == LutFill::kSafe ? "safe" : "compat");
  json.member("strict-identity", options.strict_identity)
      .member("keep-unencodable", options.keep_unencodable);
  json.member("cast-to-bf16", options.cast_to_bf16).member("with-config", options.with_config);
  json.member("hashes", options.hashes).member("force", options.force);
  json.member("resume", options.resume)
      .member("ram", options.ram_bytes)
      .member("vram", options.vram_bytes)
      .member("verifier", verifier_name(options.verifier))
      .end_object();
}

void write_units(JsonWriter& json, const CompressReport& report) {
  json.key("unit_list").begin_array();
  for (const UnitReport& unit : report.units) {
    const auto output = static_cast<double>(unit.output_bytes),
               weights = static_cast<double>(unit.num_weights);
    json.begin_object(kOneLine).member("unit", unit.unit).member("weights", unit.num_weights);
    json.member("source_bytes", unit.source_bytes).member("output_bytes", unit.output_bytes);
    json.member("ratio", output / static_cast<double>(unit.source_bytes))
        .member("bits_per_weight", 8 * output / weights)
        .end_object();
  }
  json.end_array();
}

void write_stages(JsonWriter& json, const CompressReport& report) {
  json.key("stages").begin_object();
  for (std::size_t i = 0; i < kNumStages; ++i) {
    const StageTime& time = report.stages[i];
    json.key(stage_name(static_cast<Stage>(i))).begin_object(kOneLine);
    json.member("seconds", time.seconds).member("bytes", time.bytes);
    json.member("bytes_per_second", time.seconds > 0 ? static_cast<double>(time.bytes) / time.seconds : 0.0);
    json.end_object();
  }
  json.end_object();
}

void write_memory(JsonWriter& json, const MemoryReport& memory, bool given) {
  json.key("memory").begin_object(kOneLine).member("ram_bytes", memory.ram_bytes).member("ram_given", given);
  json.member("why", memory.why).member("needed_bytes", memory.needed_bytes);
  json.member("slab_weights", memory.slab_weights).member("hold_bytes", memory.hold_bytes);
  json.member("units_held", memory.units_held).member("units_streamed", memory.units_streamed).end_object();
}

void write_machine(JsonWriter& json, const job::EnergyMeter& energy) {
  const job::MachineInfo machine = job::find_machine_info();
  json.member("simd", job::simd_level()).key("machine").begin_object(kOneLine).member("cpu", machine.cpu);
  json.member("logical_cores", machine.logical_cores).member("memory_bytes", machine.memory_bytes);
  json.member("kernel", machine.kernel).end_object();
  json.key("energy").begin_object(kOneLine);
  if (const auto joules = energy.joules()) {
    json.member("joules", *joules);
  } else {
    json.member("absent", energy.why_absent());
  }
  json.end_object();
}

void write_remarks(JsonWriter& json, const char* name, const char* text_key,
                   const std::vector<UnitRemark>& remarks) {
  json.key(name).begin_array();
  for (const UnitRemark& remark : remarks)
    json.begin_object(kOneLine).member("unit", remark.unit).member(text_key, remark.remark).end_object();
  json.end_array();
}

fs::path temporary_name(const fs::path& path) {
  return path.string() + ".partial-" + std::to_string(::getpid());
}

/// Appears whole, like every output.
void replace_file(const fs::path& path, const std::string& text) {
  if (fs::exists(path) && !fs::is_regular_file(path)) {  // a pipe or a terminal
    std::FILE* file = std::fopen(path.c_str(), "w");
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file == nullptr || std::fclose(file) != 0 || !written)
      throw Error(ErrorCode::kIo, "the report " + model::printable(path.native()) + " could not be written");
    return;
  }
  const fs::path temporary = temporary_name(path);
  std::error_code error;
  try {
    model::write_whole_file(temporary, text);
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
  fs::rename(temporary, path, error);
  if (error) {
    const std::string reason = error.message();
    fs::remove(temporary, error);
    throw Error(ErrorCode::kIo,
                "the report " + model::printable(path.native()) + " could not be written: " + reason);
  }
}

}  // namespace

void prepare_report(const fs::path& path, const CompressOptions& options) {
  const auto fail = [&](ErrorCode code, const std::string& what) {
    throw Error(code, "the report " + model::printable(path.native()) + " " + what);
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) fail(ErrorCode::kUsage, "is a folder: name a file");
  if (path.native().ends_with(".safetensors"))
    fail(ErrorCode::kUsage, "has the name of a tensor file: name a .json file");
  const auto is_same = [&](const fs::path& other) {
    return fs::equivalent(path, other, ignored) ||
           fs::weakly_canonical(path, ignored) == fs::weakly_canonical(other, ignored);
  };
  const fs::path source_folder =
      fs::is_directory(options.source, ignored) ? options.source : options.source.parent_path();
  const bool hits_input = is_same(options.source) || is_same(options.output) ||
                          (model::names_definition_file(options.arch) && is_same(options.arch)) ||
                          is_same(source_folder / "config.json") ||
                          is_same(source_folder / "generation_config.json") ||
                          path.native().ends_with(".safetensors.index.json");
  if (hits_input) fail(ErrorCode::kUsage, "would replace what the run reads or writes: name another file");
  const fs::path place = fs::weakly_canonical(path, ignored);
  fs::path output = fs::weakly_canonical(options.output, ignored);
  if (!output.has_filename()) output = output.parent_path();  // a slash at the end
  const auto lies_in = [&](const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), place.begin(), place.end()).first == folder.end();
  };
  if (lies_in(output) || lies_in(output.string() + ".partial"))
    fail(ErrorCode::kUsage, "would lie in the output: write it beside");
  if (output.native().ends_with(".safetensors") &&
      (place == output.parent_path() / job::record_name_beside(output) ||
       place == output.parent_path() / "config.json"))
    fail(ErrorCode::kUsage, "has the name of a file that goes beside the output: choose another");
  const fs::path above = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(above, ignored))
    fail(ErrorCode::kNotFound, "cannot be written: there is no folder " + model::printable(above.native()));
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return;
  // Found out now and not when all is done.
  const fs::path trial = temporary_name(path);
  model::File::create(trial).close();
  fs::remove(trial, ignored);
  // A run that is interrupted must not leave the report of an earlier one. Whatever else has that name stays
  // until there is a report to replace it. Reports and records begin alike.
  if (fs::exists(path, ignored) && job::is_output_record(path)) fs::remove(path, ignored);
}

void write_report(const fs::path& path, const ReportInput& input, const CompressReport& report) {
  JsonWriter json;
  begin(json, "done");
  write_options(json, input);
  json.member("definition", report.definition).member("why", report.why);
  json.key("also_fits").begin_array();
  for (const AlternativeDefinition& other : report.also_fits) {
    json.begin_object(kOneLine).member("name", other.name).member("same_bytes", other.same_bytes);
    json.member("difference", other.difference).end_object();
  }
  json.end_array()
      .member("layout", report.layout)
      .member("device", report.device)
      .member("why_device", report.why_device)
      .member("verifier", report.verifier)
      .member("threads", report.num_threads);
  json.member("units", report.num_units).member("kept_tensors", report.num_kept_tensors);
  json.member("source_bytes", report.source_bytes).member("output_bytes", report.output_bytes);
  json.member("unit_source_bytes", report.unit_source_bytes);
  json.member("unit_output_bytes", report.unit_output_bytes);
  json.member("seconds", report.seconds).member("peak_memory_bytes", report.peak_memory_bytes);
  json.member("bytes_per_second",
              report.seconds > 0 ? static_cast<double>(report.source_bytes) / report.seconds : 0.0);
  json.member("resumed_units", report.resumed_units).member("only_renamed", report.only_renamed);
  write_memory(json, report.memory, input.options.ram_bytes != 0);
  write_stages(json, report);
  write_machine(json, input.energy);
  json.key("notes").begin_array();
  for (const std::string& note : report.notes) json.value(note);
  json.end_array();
  write_remarks(json, "remarks", "remark", report.remarks);
  write_remarks(json, "kept_units", "reason", report.kept_units);
  json.key("dropped").begin_array();
  for (const DroppedTensorRemark& dropped : report.dropped)
    json.begin_object(kOneLine)
        .member("tensor", dropped.tensor)
        .member("reason", dropped.reason)
        .end_object();
  json.end_array().key("cast").begin_object(kOneLine);
  json.member("tensors", report.cast.num_tensors).member("changed", report.cast.changed);
  json.member("overflowed", report.cast.overflowed);
  json.member("flushed_to_zero", report.cast.flushed_to_zero).end_object();
  write_units(json, report);
  json.member("verification", input.options.verify ? "decoded" : "none").end_object();
  replace_file(path, std::move(json).take());
}

void write_failure_report(const fs::path& path, const ReportInput& input, const Error& error) {
  JsonWriter json;
  begin(json, "failed");
  json.key("error").begin_object();
  json.member("code", error_code_name(error.code())).member("message", std::string(error.what()));
  json.member("unit", error.unit()).member("tensor", error.tensor()).end_object();
  write_options(json, input);
  json.end_object();
  replace_file(path, std::move(json).take());
}

}  // namespace weightpress::cli
