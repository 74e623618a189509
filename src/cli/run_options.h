// Options that every long run has, and what holds for the outputs of all that write one.
#pragma once

#include <filesystem>
#include <string>

#include "cli/progress.h"

namespace CLI {
class App;
}

namespace weightpress::cli {

struct RunOptions {
  std::string device = "auto";
  std::string progress = "auto";
  bool quiet = false;
  bool verbose = false;

  ProgressPrinter::Mode progress_mode() const;
};

/// --threads. text: what --help says of it.
void add_threads_option(CLI::App& command, int& num_threads, const char* text);
/// --device, which the job checks, and --threads. what: "the bytes" or "the outcome".
void add_machine_options(CLI::App& command, RunOptions& run, int& num_threads, const char* what);
/// --progress and --quiet. quiet_text: what --help says of the latter.
void add_progress_options(CLI::App& command, RunOptions& run, const char* quiet_text);

/// Throws kUsage if the output's name looks like an option.
void check_output_name(const std::filesystem::path& output);
/// Where an output is written until it is complete.
std::string partial_path(const std::filesystem::path& output);

}  // namespace weightpress::cli
