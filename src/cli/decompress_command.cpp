#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/decompress.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

struct DecompressArguments {
  DecompressOptions options;
  RunOptions run;
};

void print_plan(const DecompressReport& report) {
  if (report.record.empty() && !report.is_tile_ans) {
    note(
        "there is no weightpress.json beside the input, so names and shapes of the original tensors are not "
        "recorded");
  }
  for (const std::string& text : report.notes) note(text);
  note_each(report.dropped, "tensors of the source that the input does not hold",
            [](const DecompressReport::Dropped& dropped) {
              return "'" + dropped.tensor +
                     "' of the source is not in the input, and so does not come back: " + dropped.reason;
            });
  if (!report.cast.empty()) {
    note(std::to_string(report.cast.size()) +
         " tensors of the source were cast to BF16 when it was compressed, and come back as BF16, the first "
         "being '" +
         report.cast[0].tensor + "', which was " + report.cast[0].source_dtype);
  }
}

void print_summary(const DecompressReport& report, const std::filesystem::path& output) {
  const std::string files = report.files.size() == 1 ? "1 file"
                                                     : std::to_string(report.files.size()) + " files" +
                                                           (report.is_tile_ans ? "" : " and an index");
  print((report.is_tile_ans
             ? "format       Tile-ANS"
             : "record       " + (report.record.empty() ? std::string("none")
                                                        : model::escaped_for_terminal(report.record))) +
        "\n" + "tensors      " + std::to_string(report.num_tensors) + " in " + files + ", from " +
        std::to_string(report.num_units) + (report.is_tile_ans ? " containers" : " units") + "\n" +
        "input        " + format_bytes(report.source_bytes) + "\n" + "output       " +
        format_bytes(report.output_bytes) + "\n" + "time         " +
        std::to_string(report.seconds).substr(0, 5) + " s on " +
        (report.device == "cpu" ? "the CPU" : report.device) + " (" + report.decoder + ") with " +
        std::to_string(report.num_threads) + " threads, " + format_rate(report.output_bytes, report.seconds) +
        " of output, " + format_bytes(report.peak_memory_bytes) + " of memory\n" + "written to   " +
        model::escaped_for_terminal(output.string()) + "\n");
}

int run(DecompressArguments& arguments) {
  DecompressOptions& options = arguments.options;
  check_output_name(options.output);
  ProgressPrinter progress(arguments.run.progress_mode());
  std::size_t num_notes = 0;
  options.on_planned = [&](const DecompressReport& report) {
    num_notes = report.notes.size();
    print_plan(report);
    if (arguments.run.verbose) note("device: " + report.device + ", since " + report.why_device);
  };
  options.device = arguments.run.device;
  options.on_warning = [&progress](const std::string& warning) {
    progress.clear();
    note(warning);
  };
  options.on_progress = [&progress](const DecompressProgress& state) {
    progress.show({state.phase == DecompressPhase::kDecoding ? "decompressing" : "copying", state.unit,
                   state.units_done, state.num_units, state.bytes_done, state.total_bytes});
  };
  set_unfinished_output(partial_path(options.output), false);
  const DecompressReport report = decompress(options);
  set_unfinished_output({}, false);
  progress.clear();
  for (std::size_t i = num_notes; i < report.notes.size(); ++i) note(report.notes[i]);
  if (report.removed_remains) note("the remains of an earlier run that did not end were removed");
  if (!report.old_output_left.empty()) note(report.old_output_left);
  if (!arguments.run.quiet) print_summary(report, options.output);
  return kExitDone;
}

}  // namespace

void add_decompress_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<DecompressArguments>();
  DecompressOptions& options = arguments->options;
  CLI::App* command =
      app.add_subcommand("decompress", "Turn a DF11 or Tile-ANS output back into ordinary safetensors");
  command->add_option("OUT", options.source, "an output of any maker: a folder, or a .safetensors file")
      ->required();
  command->add_option("-o,--output", options.output, "folder (or .safetensors file) that appears at the end")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--arch", options.arch, "without weightpress.json: the definition that names the tensors")
      ->capture_default_str()
      ->type_name("NAME");
  command
      ->add_option("--source-shapes", options.source_shapes,
                   "without weightpress.json: shapes, from a safetensors file or folder, or a .json")
      ->option_text("PATH");
  add_machine_options(*command, arguments->run, options.num_threads, "the output");
  command->add_flag("--force", options.force, "replace DIR if an earlier run wrote it");
  add_progress_options(*command, arguments->run, "no progress, no summary");
  command->add_flag("-v,--verbose", arguments->run.verbose, "say which device decodes, and why");
  command->footer(
      "Example:\n  weightpress decompress Qwen3-8B-DF11 -o Qwen3-8B\n\n"
      "With the weightpress.json that compress wrote, tensors come back under their names, in their\n"
      "shapes and files. Everything is written to DIR.partial, which becomes DIR by one rename.\n"
      "Exit codes: 0 done, 1 a file is corrupt, 2 it could not be done, 130 interrupted.");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace weightpress::cli
