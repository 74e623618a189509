#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/compress.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/progress.h"
#include "cli/report_file.h"
#include "cli/run_options.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

struct CompressArguments {
  CompressOptions options;
  std::string luts = "compat";
  RunOptions run;
  std::filesystem::path report;
  bool safe = false;
  bool fast = false;
};

std::string percent(std::uint64_t part, std::uint64_t whole) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f%%",
                whole == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(whole));
  return text.data();
}

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
  if (report.removed_remains) note("the remains of an earlier run that did not end were removed");
  if (!report.old_output_left.empty()) note(report.old_output_left);
  if (report.lacks_source_config) {
    note(
        "there is no config.json beside the source; the one written holds only dfloat11_config, and loaders "
        "may need the model's own keys too");
  }
}

void print_summary(const CompressReport& report, const CompressArguments& arguments) {
  const std::string bits = report.unit_source_bytes == 0
                               ? std::string("-")
                               : std::to_string(16 * static_cast<double>(report.unit_output_bytes) /
                                                static_cast<double>(report.unit_source_bytes))
                                     .substr(0, 5);
  print("definition   " + model::escaped_for_terminal(report.definition) + ", layout " + report.layout +
        "\n" + "units        " + std::to_string(report.num_units) + " compressed, " +
        std::to_string(report.num_kept_tensors) + " tensors outside them\n" + "source       " +
        format_bytes(report.source_bytes) + "\n" + "output       " + format_bytes(report.output_bytes) +
        ", " + percent(report.output_bytes, report.source_bytes) + " of the source\n" + "units only   " +
        format_bytes(report.unit_source_bytes) + " to " + format_bytes(report.unit_output_bytes) + ", " +
        bits + " bits a weight\n" + "time         " + std::to_string(report.seconds).substr(0, 5) +
        " s on the CPU with " + std::to_string(report.num_threads) + " threads, " +
        format_rate(report.source_bytes, report.seconds) + " of source, " +
        format_bytes(report.peak_memory_bytes) + " of memory\n" +
        (arguments.fast ? "" : "verified     every unit was read back and compared\n") + "written to   " +
        model::escaped_for_terminal(arguments.options.output.string()) + "\n");
}

const char* phase_name(CompressPhase phase) {
  switch (phase) {
    case CompressPhase::kPlanning:
      return "planning";
    case CompressPhase::kCompressing:
      return "compressing";
    case CompressPhase::kCopying:
      break;
  }
  return "copying";
}

/// Says what is wrong if the report cannot be written, beside whatever else the run has to say.
template <class Write>
bool try_write_report(Write write) {
  try {
    write();
    return true;
  } catch (const Error& error) {
    std::fprintf(stderr, "weightpress: the report: %s\n", model::escaped_for_terminal(error.what()).c_str());
    return false;
  }
}

int run(CompressArguments& arguments) {
  CompressOptions& options = arguments.options;
  options.luts = arguments.luts == "safe" ? LutFill::kSafe : LutFill::kCompat;
  options.verify = !arguments.fast;
  const ReportInput input{options, arguments.run.device, arguments.fast};
  check_output_name(options.output);
  const bool reports = !arguments.report.empty();
  if (reports) prepare_report(arguments.report, options);
  ProgressPrinter progress(arguments.run.progress_mode());
  std::size_t num_notes = 0, num_dropped = 0;
  options.on_planned = [&](const CompressReport& report) {
    num_notes = report.notes.size();
    num_dropped = report.dropped.size();
    print_plan(report, options);
  };
  options.on_progress = [&progress](const CompressProgress& state) {
    progress.show({phase_name(state.phase), state.unit, state.units_done, state.num_units, state.bytes_done,
                   state.total_bytes});
  };
  set_unfinished_output(partial_path(options.output));
  CompressReport report;
  try {
    report = compress(options);
  } catch (const Error& error) {
    progress.clear();
    if (reports) try_write_report([&] { write_failure_report(arguments.report, input, error); });
    throw;
  }
  set_unfinished_output({});
  progress.clear();
  print_notes(report, num_notes, num_dropped);
  if (!arguments.run.quiet) print_summary(report, arguments);
  if (!reports || try_write_report([&] { write_report(arguments.report, input, report); })) return kExitDone;
  note("the output is complete");
  return kExitImpossible;
}

}  // namespace

void add_compress_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CompressArguments>();
  CompressOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("compress", "Compress a safetensors checkpoint to DF11");
  command->add_option("SOURCE", options.source, "a .safetensors file, or a folder of them")->required();
  command->add_option("-o,--output", options.output, "folder (or .safetensors file) that appears at the end")
      ->required()
      ->type_name("OUT");
  command->add_option("--arch", options.arch, "model definition: a name, a file, or auto")
      ->capture_default_str()
      ->type_name("NAME");
  command->add_option("--layout", options.layout, "files that are written (default: the definition's)")
      ->check(CLI::IsMember({"transformers", "diffusers", "diffusers-single", "comfyui"}))
      ->option_text("LAYOUT");
  add_machine_options(*command, arguments->run, options.num_threads,
                      "CPU threads (default: all); the bytes stay the same");
  command->add_flag("--safe", arguments->safe,
                    "read each unit back and compare it before it counts (default)");
  command->add_flag("--fast", arguments->fast, "do not read back")->excludes("--safe");
  command
      ->add_option("--luts", arguments->luts,
                   "tables as in official files, or such that decoding always ends")
      ->check(CLI::IsMember({"compat", "safe"}))
      ->option_text("compat|safe");
  command->add_flag("--strict-identity", options.strict_identity,
                    "refuse units that would not be official bytes");
  command->add_flag("--keep-unencodable", options.keep_unencodable, "store what DF11 cannot hold as it is");
  command->add_flag("--cast-to-bf16", options.cast_to_bf16, "round F32 and F16 tensors to BF16: a loss");
  command->add_flag("--with-config", options.with_config, "write the source's config.json in every layout");
  command->add_flag("--hashes", options.hashes, "store SHA-256 of every tensor and header in the files");
  command->add_flag("--force", options.force, "replace OUT if it is there");
  command->add_option("--report", arguments->report, "write what was done as JSON")->option_text("FILE.json");
  add_progress_options(*command, arguments->run, "no progress, no summary");
  command->footer(
      "Example:\n  weightpress compress Qwen3-8B -o Qwen3-8B-DF11\n\n"
      "Everything is written to OUT.partial, which becomes OUT by one rename.\n"
      "Exit codes: 0 done, 1 a file is corrupt, 2 it could not be done, 130 interrupted.");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace weightpress::cli
