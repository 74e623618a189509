#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/compress.h>

#include "cli/commands.h"
#include "cli/compress_arguments.h"
#include "cli/console.h"
#include "cli/progress.h"
#include "model/json_writer.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

void print_json(const SizeEstimate& estimate) {
  const CompressReport& report = estimate.report;
  model::JsonWriter json(model::JsonWriter::Encoding::kAscii);
  json.begin_object().member("weightpress", WP_VERSION).member("command", "estimate");
  json.member("definition", report.definition).member("layout", report.layout);
  json.member("source_bytes", report.source_bytes).member("output_bytes", estimate.output_bytes);
  json.member("num_files", estimate.num_files).member("units", report.num_units);
  json.member("kept_tensors", report.num_kept_tensors);
  json.member("unit_source_bytes", report.unit_source_bytes);
  json.member("unit_output_bytes", report.unit_output_bytes);
  json.member("seconds", report.seconds).member("peak_memory_bytes", report.peak_memory_bytes);
  json.key("unit_list").begin_array();
  for (const UnitReport& unit : report.units) {
    json.begin_object(model::JsonWriter::Style::kOneLine).member("unit", unit.unit);
    json.member("weights", unit.num_weights).member("output_bytes", unit.output_bytes).end_object();
  }
  json.end_array().end_object();
  print(std::move(json).take());
}

void print_table(const SizeEstimate& estimate) {
  const CompressReport& report = estimate.report;
  print((report.definition.empty()
             ? "format       Tile-ANS\ntensors      " + std::to_string(report.num_units) + " compressed, " +
                   std::to_string(report.num_kept_tensors) + " kept as they were\n"
             : "definition   " + model::escaped_for_terminal(report.definition) + ", layout " +
                   report.layout + "\n" + "units        " + std::to_string(report.num_units) + ", and " +
                   std::to_string(report.num_kept_tensors) + " tensors outside them\n") +
        "source       " + format_bytes(report.source_bytes) + "\n" + "output       " +
        format_bytes(estimate.output_bytes) + " (" + std::to_string(estimate.output_bytes) + " bytes in " +
        std::to_string(estimate.num_files) + " files), " +
        percent(estimate.output_bytes, report.source_bytes) + " of the source\n");
}

int run(CompressArguments& arguments) {
  CompressOptions& options = settled_options(arguments);
  ProgressPrinter progress(arguments.run.progress_mode());
  PlanPrinter plan(arguments);
  plan.attach(options);
  show_progress_of(options, progress);
  options.on_warning = [&](const std::string& warning) {
    progress.clear();
    note(warning);
  };
  const SizeEstimate result = [&] {
    try {
      return estimate(options);
    } catch (const Error&) {
      progress.clear();
      throw;
    }
  }();
  progress.clear();
  plan.print_rest(result.report);
  if (arguments.json) {
    print_json(result);
  } else {
    print_table(result);
  }
  return kExitDone;
}

}  // namespace

void add_estimate_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CompressArguments>();
  CLI::App* command =
      app.add_subcommand("estimate", "Tell the exact size that compress would give, and write nothing");
  command->add_option("SOURCE", arguments->options.source, "a .safetensors file, or a folder of them")
      ->required();
  add_compress_options(*command, *arguments);
  command->add_flag("--json", arguments->json, "one JSON object with everything, each unit included");
  add_progress_options(*command, arguments->run, "no progress");
  command->add_flag("-v,--verbose", arguments->run.verbose, "say how the memory is shared out");
  command->footer(
      "Example:\n  weightpress estimate Qwen3-8B\n\n"
      "All weights of units are read once. The options are those of compress, and so is the size.");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace weightpress::cli
