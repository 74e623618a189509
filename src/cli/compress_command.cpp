#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/compress.h>

#include "cli/commands.h"
#include "cli/compress_arguments.h"
#include "cli/console.h"
#include "cli/progress.h"
#include "cli/report_file.h"
#include "cli/run_options.h"
#include "job/energy_meter.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

void print_summary(const CompressReport& report, const CompressArguments& arguments) {
  const bool is_tile_ans = arguments.options.format == Format::kTileAns;
  const std::string bits = report.unit_source_bytes == 0
                               ? std::string("-")
                               : std::to_string(16 * static_cast<double>(report.unit_output_bytes) /
                                                static_cast<double>(report.unit_source_bytes))
                                     .substr(0, 5);
  if (report.only_renamed) {
    print("written to   " + model::escaped_for_terminal(arguments.options.output.string()) + "\n");
    return;
  }
  print((is_tile_ans
             ? "format       Tile-ANS\ntensors      " + std::to_string(report.num_units) + " compressed, " +
                   std::to_string(report.num_kept_tensors) + " kept as they were\n"
             : "definition   " + model::escaped_for_terminal(report.definition) + ", layout " +
                   report.layout + "\n" + "units        " + std::to_string(report.num_units) +
                   " compressed, " + std::to_string(report.num_kept_tensors) + " tensors outside them\n") +
        "source       " + format_bytes(report.source_bytes) + "\n" + "output       " +
        format_bytes(report.output_bytes) + ", " + percent(report.output_bytes, report.source_bytes) +
        " of the source\n" + (is_tile_ans ? "compressed   " : "units only   ") +
        format_bytes(report.unit_source_bytes) + " to " + format_bytes(report.unit_output_bytes) +
        (is_tile_ans ? "" : ", " + bits + " bits a weight") + "\n" + "time         " +
        std::to_string(report.seconds).substr(0, 5) + " s on " +
        (report.device == "cpu" ? "the CPU" : report.device) + " with " + std::to_string(report.num_threads) +
        " threads, " + format_rate(report.source_bytes, report.seconds) + " of source, " +
        format_bytes(report.peak_memory_bytes) + " of memory\n" +
        (report.verifier.empty() ? ""
                                 : std::string("verified     every ") + (is_tile_ans ? "tensor" : "unit") +
                                       " was read back and compared (" + report.verifier + ")\n") +
        "written to   " + model::escaped_for_terminal(arguments.options.output.string()) + "\n");
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
  CompressOptions& options = settled_options(arguments);
  job::EnergyMeter energy;
  const ReportInput input{options, arguments.run.device, arguments.fast, energy};
  check_output_name(options.output);
  const bool reports = !arguments.report.empty();
  if (reports) prepare_report(arguments.report, options);
  ProgressPrinter progress(arguments.run.progress_mode());
  PlanPrinter plan(arguments);
  plan.attach(options);
  options.on_warning = [&](const std::string& warning) {
    progress.clear();
    note(warning);
  };
  CompressProgress last;
  using Clock = std::chrono::steady_clock;
  show_progress_of(options, progress, [&, sampled = Clock::now()](const CompressProgress& state) mutable {
    last = state;
    // From now on OUT may be complete: nobody is to be sent back.
    if (state.phase == CompressPhase::kFinishing) set_unfinished_output({}, false);
    constexpr std::chrono::seconds kSampleInterval{30};  // counters wrap around
    if (const Clock::time_point now = Clock::now(); now - sampled >= kSampleInterval) {
      energy.sample();
      sampled = now;
    }
  });
  set_unfinished_output(partial_path(options.output), true);
  CompressReport report;
  try {
    report = compress(options);
  } catch (const Error& error) {
    progress.clear();
    PlanPrinter::print_resumed(last.units_resumed, last.num_units);
    if (reports) try_write_report([&] { write_failure_report(arguments.report, input, error); });
    throw;
  }
  set_unfinished_output({}, false);
  progress.clear();
  plan.print_rest(report);
  if (!arguments.run.quiet) print_summary(report, arguments);
  if (!reports || try_write_report([&] { write_report(arguments.report, input, report); })) return kExitDone;
  note("the output is complete");
  return kExitImpossible;
}

}  // namespace

void add_compress_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CompressArguments>();
  CompressOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("compress", "Compress a safetensors checkpoint to DF11 or Tile-ANS");
  command->add_option("SOURCE", options.source, "a .safetensors file, or a folder of them")->required();
  command->add_option("-o,--output", options.output, "folder (or .safetensors file) that appears at the end")
      ->required()
      ->type_name("OUT");
  add_compress_options(*command, *arguments);
  command->add_flag("--force", options.force, "replace OUT if it is there");
  command->add_flag("!--no-resume", options.resume, "do not go on with OUT.partial, remove it");
  command->add_option("--report", arguments->report, "write what was done as JSON")->option_text("FILE.json");
  add_progress_options(*command, arguments->run, "no progress, no summary");
  command->add_flag("-v,--verbose", arguments->run.verbose, "say how the memory is shared out");
  command->footer(
      "Example:\n  weightpress compress Qwen3-8B -o Qwen3-8B-DF11\n\n"
      "Everything is written to OUT.partial, which becomes OUT by one rename. A run that was stopped goes "
      "on\n"
      "where it was when the same command is given again.\n"
      "Exit codes: 0 done, 1 a file is corrupt, 2 it could not be done, 130 interrupted.");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace weightpress::cli
