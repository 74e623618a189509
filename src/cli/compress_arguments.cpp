#include "cli/compress_arguments.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/console.h"
#include "job/size_option.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

std::string record_name(const CompressOptions& options) {
  return options.output.native().ends_with(".safetensors")
             ? options.output.stem().string() + ".weightpress.json"
             : "weightpress.json";
}

/// What the user may want to know, and change, before hours of work.
void print_plan(const CompressReport& report, const CompressOptions& options) {
  if (!report.why.empty()) note("the definition " + report.definition + " was chosen, since " + report.why);
  for (const AlternativeDefinition& other : report.also_fits) {
    if (other.same_bytes) continue;
    note("the definition " + other.name + " fits too and would give other files (it " + other.difference +
         "): to get those instead, --arch " + other.name);
  }
  for (const std::string& text : report.notes) note(text);
  if (!report.dropped.empty()) {
    note(std::to_string(report.dropped.size()) +
         " tensors of the source are not in the output, the first being '" + report.dropped[0].tensor +
         "': " + report.dropped[0].reason + " (" + record_name(options) + " lists all)");
  }
}

/// num_notes, num_dropped: those that print_plan() has told.
void print_notes(const CompressReport& report, std::size_t num_notes, std::size_t num_dropped) {
  for (std::size_t i = num_notes; i < report.notes.size(); ++i) note(report.notes[i]);
  for (std::size_t i = num_dropped; i < report.dropped.size(); ++i)
    note("'" + report.dropped[i].tensor + "' is not in the output: " + report.dropped[i].reason);
  note_each(report.remarks, "such units",
            [](const UnitRemark& remark) { return "unit " + remark.unit + ": " + remark.remark; });
  note_each(report.kept_units, "units that are kept",
            [](const UnitRemark& kept) { return "kept as it is: " + kept.remark; });
  if (report.cast.num_tensors != 0) {
    note(std::to_string(report.cast.num_tensors) + " tensors were cast to BF16, which is a loss: " +
         std::to_string(report.cast.changed) + " values changed, " + std::to_string(report.cast.overflowed) +
         " overflowed to Inf, " + std::to_string(report.cast.flushed_to_zero) + " were flushed to zero");
  }
  if (report.only_renamed) {
    note("an earlier run had done everything but the last step: its output was given its name");
  }
  PlanPrinter::print_resumed(report.resumed_units, report.num_units);
  if (report.removed_remains) note("the remains of an earlier run that did not end were removed");
  if (!report.old_output_left.empty()) note(report.old_output_left);
  if (report.lacks_source_config) {
    note(
        "there is no config.json beside the source; the one written holds only dfloat11_config, and loaders "
        "may need the model's own keys too");
  }
}

const char* phase_name(CompressPhase phase) {
  switch (phase) {
    case CompressPhase::kPlanning:
      return "planning";
    case CompressPhase::kCompressing:
      return "compressing";
    case CompressPhase::kCopying:
      return "copying";
    case CompressPhase::kFinishing:
      break;
  }
  return "finishing";
}

std::uint64_t size_of(const char* option, const std::string& text) {
  if (const auto bytes = job::parse_size(text)) return *bytes;
  throw Error(ErrorCode::kUsage,
              std::string(option) + " " + model::in_quotes(text) +
                  " is no size: it must be like 512M or 4G (K, M, G, T are powers of 1024)");
}

/// Of the options that follow, the file format's alone.
void add_tile_ans_options(CLI::App& command, CompressArguments& arguments) {
  TileAnsOptions& options = arguments.options.tile_ans;
  const char* const group = "With --format tile-ans";
  command.add_option("--tile-elements", options.tile_elements, "elements of a tile (default 0: by size)")
      ->check(CLI::Range(std::int64_t{0}, (std::int64_t{1} << 31) - 1))
      ->option_text("N")
      ->group(group);
  command.add_option("--probability-bits", options.probability_bits, "9 to 12 (default 0: what takes least)")
      ->option_text("N")
      ->group(group);
  command.add_option("--raw-lane-threshold", options.raw_lane_threshold, "bits a byte (default 7.9)")
      ->option_text("X")
      ->group(group);
  const auto add_patterns = [&](const char* name, std::vector<std::string>& patterns, const char* text) {
    command.add_option(name, patterns, text)->option_text("PATTERN")->group(group)->allow_extra_args(false);
  };
  add_patterns("--include", options.include, "only tensors of these names (Python regex)");
  add_patterns("--exclude", options.exclude, "no tensors of these names");
  command.add_option("--dtype", arguments.dtypes, "only tensors of these dtypes, e.g. BF16,I8")
      ->check([](const std::string& list) { return std::string(list.empty() ? "the list is empty" : ""); })
      ->option_text("LIST")
      ->group(group);
}

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

void add_compress_options(CLI::App& command, CompressArguments& arguments) {
  CompressOptions& options = arguments.options;
  command.add_option("--format", arguments.format, "df11: BF16 models; tile-ans: tensors of any dtype")
      ->capture_default_str()
      ->check(CLI::IsMember({"df11", "tile-ans"}))
      ->option_text("df11|tile-ans");
  command.add_option("--arch", options.arch, "model definition: a name, a file, or auto")
      ->capture_default_str()
      ->type_name("NAME");
  command.add_option("--layout", options.layout, "files that are written (default: the definition's)")
      ->check(CLI::IsMember({"transformers", "diffusers", "diffusers-single", "comfyui"}))
      ->option_text("LAYOUT");
  command
      .add_option("--device", arguments.run.device,
                  "auto: the first GPU that can be used, else the CPU; the bytes stay the same")
      ->option_text("auto|cpu|cuda|cuda:N|cuda:N,M");
  add_threads_option(command, options.num_threads, "CPU threads (default: all); the bytes stay the same");
  command
      .add_option("--verifier", arguments.verifier,
                  "what reads units back on a GPU; auto: also dfloat11's own kernel, if it is found")
      ->check(CLI::IsMember({"auto", "own", "official"}))
      ->option_text("auto|own|official");
  command
      .add_option("--vram", arguments.vram,
                  "memory of the GPU, e.g. 4G (default: nine tenths of what is free)")
      ->option_text("SIZE");
  command
      .add_option("--ram", arguments.ram,
                  "memory of the whole process, e.g. 512M (default: 60% of what is free)")
      ->option_text("SIZE");
  command.add_flag("--safe", arguments.safe, "read each unit back and compare it before it counts (default)");
  command.add_flag("--fast", arguments.fast, "do not read back")->excludes("--safe");
  command
      .add_option("--luts", arguments.luts, "tables as in official files, or such that decoding always ends")
      ->check(CLI::IsMember({"compat", "safe"}))
      ->option_text("compat|safe");
  command.add_flag("--strict-identity", options.strict_identity,
                   "refuse units that would not be official bytes");
  command.add_flag("--keep-unencodable", options.keep_unencodable, "store what DF11 cannot hold as it is");
  command.add_flag("--cast-to-bf16", options.cast_to_bf16, "round F32 and F16 tensors to BF16: a loss");
  command.add_flag("--with-config", options.with_config, "write the source's config.json in every layout");
  command.add_flag("--hashes", options.hashes, "store SHA-256 of every tensor and header in the files");
  add_tile_ans_options(command, arguments);
}

CompressOptions& settled_options(CompressArguments& arguments) {
  CompressOptions& options = arguments.options;
  options.format = arguments.format == "tile-ans" ? Format::kTileAns : Format::kDf11;
  if (options.format == Format::kTileAns && !arguments.luts.empty())
    throw Error(ErrorCode::kUsage, "--luts is of no use with --format tile-ans: leave it out");
  if (!arguments.dtypes.empty()) options.tile_ans.dtypes = split_at_commas(arguments.dtypes);
  options.luts = arguments.luts == "safe" ? LutFill::kSafe : LutFill::kCompat;
  options.verify = !arguments.fast;
  options.device = arguments.run.device;
  if (arguments.ram) options.ram_bytes = size_of("--ram", *arguments.ram);
  if (arguments.verifier == "own") options.verifier = Verifier::kOwn;
  if (arguments.verifier == "official") options.verifier = Verifier::kOfficial;
  if (arguments.vram) options.vram_bytes = size_of("--vram", *arguments.vram);
  return options;
}

void show_progress_of(CompressOptions& options, ProgressPrinter& progress,
                      std::function<void(const CompressProgress&)> also) {
  options.on_progress = [&progress, also = std::move(also)](const CompressProgress& state) {
    if (also) also(state);
    progress.show({phase_name(state.phase), state.unit, state.units_done, state.num_units, state.bytes_done,
                   state.total_bytes, state.bytes_resumed});
  };
}

void PlanPrinter::attach(CompressOptions& options) {
  options.on_planned = [this](const CompressReport& report) {
    num_notes_ = report.notes.size();
    num_dropped_ = report.dropped.size();
    print_plan(report);
    if (arguments_.run.verbose) {
      note("device: " + report.device + ", since " + report.why_device);
      print_memory(report.memory);
    }
  };
}

void PlanPrinter::print_plan(const CompressReport& report) const {
  cli::print_plan(report, arguments_.options);
}

void PlanPrinter::print_memory(const MemoryReport& memory) const {
  note("memory: " + format_bytes(memory.ram_bytes) + " may be used, since " + memory.why + "; slabs of " +
       std::to_string(memory.slab_weights) +
       (arguments_.options.format == Format::kTileAns ? " bytes" : " weights") + " need at most " +
       format_bytes(memory.needed_bytes) + ", and up to " + format_bytes(memory.hold_bytes) +
       " of weights are held so as not to be read twice");
}

void PlanPrinter::print_resumed(std::uint64_t units_resumed, std::uint64_t num_units) {
  if (units_resumed == 0) return;
  note("went on with an earlier run: " + std::to_string(units_resumed) + " of " + std::to_string(num_units) +
       " units were done");
}

void PlanPrinter::print_rest(const CompressReport& report) const {
  print_notes(report, num_notes_, num_dropped_);
  if (arguments_.run.verbose && !report.only_renamed) {
    note("memory: " + std::to_string(report.memory.units_held) + " units were held whole, " +
         std::to_string(report.memory.units_streamed) +
         " were streamed in slabs; the most that was used is " + format_bytes(report.peak_memory_bytes));
  }
}

}  // namespace weightpress::cli
