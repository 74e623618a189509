#include "cli/run_options.h"

#include <CLI/CLI.hpp>

#include <weightpress/error.h>

namespace weightpress::cli {

ProgressPrinter::Mode RunOptions::progress_mode() const {
  using Mode = ProgressPrinter::Mode;
  if (quiet || progress == "none") return Mode::kNone;
  if (progress == "bar") return Mode::kBar;
  return progress == "plain" ? Mode::kPlain : Mode::kAuto;
}

void add_threads_option(CLI::App& command, int& num_threads, const char* text) {
  command.add_option("--threads", num_threads, text)->check(CLI::Range(1, 1024))->option_text("N");
}

void add_machine_options(CLI::App& command, RunOptions& run, int& num_threads, const char* what) {
  command
      .add_option("--device", run.device,
                  "auto: the first GPU that can be used, else the CPU; " + std::string(what) + " is the same")
      ->option_text("auto|cpu|cuda|cuda:N|cuda:N,M");
  add_threads_option(command, num_threads, "CPU threads (default: all)");
}

void add_progress_options(CLI::App& command, RunOptions& run, const char* quiet_text) {
  command.add_option("--progress", run.progress, "auto, bar, plain or none, on standard error")
      ->check(CLI::IsMember({"auto", "bar", "plain", "none"}))
      ->option_text("MODE");
  command.add_flag("-q,--quiet", run.quiet, quiet_text);
}

void check_output_name(const std::filesystem::path& output) {
  if (!output.native().starts_with('-')) return;
  throw Error(ErrorCode::kUsage, "the output " + output.string() +
                                     " looks like an option: if that is its name, write ./" +
                                     output.string());
}

std::string partial_path(const std::filesystem::path& output) {
  return (output.has_filename() ? output : output.parent_path()).string() + ".partial";
}

}  // namespace weightpress::cli
