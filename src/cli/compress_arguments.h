// What compress and estimate share: options that decide the output's bytes, and notes on the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <weightpress/compress.h>

#include "cli/progress.h"
#include "cli/run_options.h"

namespace weightpress::cli {

struct CompressArguments {
  CompressOptions options;
  std::string format = "df11";
  std::string luts;  ///< empty: not given
  std::string dtypes;
  std::optional<std::string> ram, vram;
  std::string verifier = "auto";
  RunOptions run;
  std::filesystem::path report;
  bool safe = false;
  bool fast = false;
  bool json = false;
};

/// All that decides the bytes, and those of the machine.
void add_compress_options(CLI::App& command, CompressArguments& arguments);

/// The options, once the command line was read. Throws kUsage.
CompressOptions& settled_options(CompressArguments& arguments);

/// Lets `progress`, which must outlive the run, show where it is. also: called with the same states, before.
void show_progress_of(CompressOptions& options, ProgressPrinter& progress,
                      std::function<void(const CompressProgress&)> also = {});

/// Prints what a user should know of a run: part of it before it begins, the rest at the end.
class PlanPrinter {
 public:
  explicit PlanPrinter(const CompressArguments& arguments) : arguments_(arguments) {}

  /// To be told of the plan. The object must outlive the run.
  void attach(CompressOptions& options);
  void print_rest(const CompressReport& report) const;
  /// Of a run that failed: how far it had come.
  static void print_resumed(std::uint64_t units_resumed, std::uint64_t num_units);

 private:
  void print_plan(const CompressReport& report) const;
  void print_memory(const MemoryReport& memory) const;

  const CompressArguments& arguments_;
  // Those that are printed.
  std::size_t num_notes_ = 0;
  std::size_t num_dropped_ = 0;
};

}  // namespace weightpress::cli
