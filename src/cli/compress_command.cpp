#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/compress.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/progress.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

struct CompressArguments {
  CompressOptions options;
  std::string luts = "compat";
  std::string layout = "transformers";
  std::string device = "auto";
  bool quiet = false;
};

std::string percent(std::uint64_t part, std::uint64_t whole) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f%%",
                whole == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(whole));
  return text.data();
}

void print_report(const CompressReport& report, const CompressArguments& arguments) {
  for (const UnitRemark& remark : report.remarks) {
    std::fprintf(stderr, "note: unit %s: %s\n", model::escaped_for_terminal(remark.unit).c_str(),
                 remark.remark.c_str());
  }
  if (report.removed_remains) {
    std::fprintf(stderr, "note: the remains of an earlier run that did not end were removed\n");
  }
  if (!report.old_output_left.empty()) {
    std::fprintf(stderr, "note: %s\n", model::escaped_for_terminal(report.old_output_left).c_str());
  }
  if (!report.has_source_config) {
    std::fprintf(
        stderr,
        "note: there is no config.json beside the source; the one written holds only dfloat11_config, and "
        "transformers needs the model's own keys too\n");
  }
  std::fprintf(stderr, "note: nothing was verified: this version writes and does not read back\n");
  if (arguments.quiet) return;

  const std::string bits = report.unit_source_bytes == 0
                               ? std::string("-")
                               : std::to_string(16 * static_cast<double>(report.unit_output_bytes) /
                                                static_cast<double>(report.unit_source_bytes))
                                     .substr(0, 5);
  print("definition   " + model::escaped_for_terminal(report.definition) + "\n" + "units        " +
        std::to_string(report.num_units) + " compressed, " + std::to_string(report.num_kept_tensors) +
        " tensors kept as they are\n" + "source       " + format_bytes(report.source_bytes) + "\n" +
        "output       " + format_bytes(report.output_bytes) + ", " +
        percent(report.output_bytes, report.source_bytes) + " of the source\n" + "units only   " +
        format_bytes(report.unit_source_bytes) + " to " + format_bytes(report.unit_output_bytes) + ", " +
        bits + " bits a weight (siblings and headers included)\n" + "time         " +
        std::to_string(report.seconds).substr(0, 5) + " s on the CPU with " +
        std::to_string(report.num_threads) + " threads, " + format_rate(report.source_bytes, report.seconds) +
        " of source\n" + "written to   " + model::escaped_for_terminal(arguments.options.output.string()) +
        "\n");
}

int run(CompressArguments& arguments) {
  arguments.options.luts = arguments.luts == "safe" ? LutFill::kSafe : LutFill::kCompat;
  ProgressPrinter progress(arguments.quiet);
  arguments.options.on_progress = [&progress](const CompressProgress& state) { progress.show(state); };
  const CompressReport report = compress(arguments.options);
  progress.clear();
  print_report(report, arguments);
  return kExitDone;
}

}  // namespace

void add_compress_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CompressArguments>();
  CompressOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("compress", "Compress a BF16 safetensors checkpoint to DF11");
  command
      ->add_option("SOURCE", options.source,
                   "a .safetensors file, or a folder of them with or without an index")
      ->required();
  command->add_option("-o,--output", options.output, "folder to write; appears complete, at the end")
      ->required()
      ->type_name("OUT");
  command->add_option("--arch", options.definition, "model definition: which modules become units")
      ->required()
      ->type_name("FILE.json");
  command->add_option("--layout", arguments->layout, "files that are written")
      ->check(CLI::IsMember({"transformers"}))
      ->capture_default_str();
  command
      ->add_option("--device", arguments->device,
                   "where the work is done; this version has no GPU path, so auto is cpu")
      ->check(CLI::IsMember({"auto", "cpu"}))
      ->capture_default_str();
  command
      ->add_option("--threads", options.num_threads,
                   "CPU threads (default: all); the bytes do not depend on it")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command
      ->add_option("--luts", arguments->luts,
                   "compat: tables as in official files; safe: decoding always ends")
      ->check(CLI::IsMember({"compat", "safe"}))
      ->capture_default_str();
  command->add_flag("--strict-identity", options.strict_identity,
                    "refuse units whose bytes would not be the official ones");
  command->add_flag("--force", options.force, "replace OUT if it is there");
  command->add_flag("-q,--quiet", arguments->quiet, "no progress and no summary");
  command->footer(
      "Example:\n  weightpress compress Qwen3-8B -o Qwen3-8B-DF11 --arch qwen3-8b.json\n\n"
      "Everything is written to OUT.partial, which becomes OUT by one rename.\n"
      "Exit codes: 0 done, 1 a file is corrupt, 2 it could not be done.");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace weightpress::cli
