#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/selftest.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

struct SelftestArguments {
  bool compare = false;
  std::string format;  // empty: both
  SelftestComparisonOptions comparison;
};

int finish(std::size_t num_passed, std::size_t num_failed, const std::string& what = {}) {
  print(std::to_string(num_passed) + " passed, " + std::to_string(num_failed) + " failed" + what + "\n");
  return num_failed == 0 ? kExitDone : kExitCorrupt;
}

int run_cases(int num_threads) {
  std::size_t failed = 0;
  const std::vector<SelftestCase> cases = run_selftest(num_threads);
  for (const SelftestCase& test : cases) {
    failed += test.passed ? 0 : 1;
    print((test.passed ? "ok      " : "FAILED  ") + test.name + (test.passed ? "" : ": " + test.problem) +
          "\n");
  }
  return finish(cases.size() - failed, failed);
}

int run_comparison(const SelftestComparisonOptions& options) {
  std::size_t failed = 0;
  const SelftestComparison comparison = compare_selftest_paths(options);
  const SelftestPath* before = nullptr;
  for (const SelftestPath& path : comparison.paths) {
    const std::string name = model::escaped_for_terminal(path.name);
    const bool is_first = before == nullptr || path.format != before->format;
    before = &path;
    failed += path.problems.empty() ? 0 : 1;
    if (path.problems.empty())
      print("ok      " + name + (is_first ? ": read by the slow decoder" : "") + "\n");
    for (const std::string& problem : path.problems)
      print("FAILED  " + name + ": " + model::escaped_for_terminal(problem) + "\n");
    const bool is_df11 = path.format == Format::kDf11;
    if (path.num_units < (is_df11 ? comparison.num_units : comparison.num_tensors))
      print("        " + name + ": given up after " + std::to_string(path.num_units) +
            (is_df11 ? " units\n" : " tensors\n"));
  }
  for (const std::string& path : comparison.not_run)
    print("not run " + model::escaped_for_terminal(path) + "\n");
  std::string what;
  if (options.df11) what = std::to_string(comparison.num_units) + " units";
  if (options.tile_ans)
    what += (what.empty() ? "" : " and ") + std::to_string(comparison.num_tensors) + " tensors";
  return finish(
      comparison.paths.size() - failed, failed,
      ": paths, with " + what + " (" + std::to_string(options.num_random_units) +
          (options.df11 && options.tile_ans ? " random ones of each, of seed " : " random ones of seed ") +
          std::to_string(options.seed) + ")");
}

}  // namespace

void add_selftest_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<SelftestArguments>();
  SelftestComparisonOptions& comparison = arguments->comparison;
  CLI::App* command =
      app.add_subcommand("selftest", "Check the codecs of this machine on built-in units and tensors");
  command->add_option("--threads", comparison.num_threads, "CPU threads (default: all)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  CLI::Option* const compare =
      command->add_flag("--compare", arguments->compare, "every path, CPU and GPUs, byte by byte");
  command->add_option("--format", arguments->format, "only the paths of one format (default: both)")
      ->check(CLI::IsMember({"df11", "tile-ans"}))
      ->option_text("df11|tile-ans")
      ->needs(compare);
  command
      ->add_option("--units", comparison.num_random_units,
                   "random units, and tensors, besides the built-in ones (default: 100)")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N")
      ->needs(compare);
  command->add_option("--seed", comparison.seed, "of the random ones (default: 1)")
      ->type_name("S")
      ->needs(compare);
  command
      ->add_option("--max-weights", comparison.max_weights,
                   "of a unit; a tensor has twice as many bytes (default: 100000)")
      ->check(CLI::Range(1, 100'000'000))
      ->type_name("N")
      ->needs(compare);
  command->footer(
      "Example:\n  weightpress selftest --compare\n\n"
      "Built-in units (DF11) and tensors (Tile-ANS) are encoded and read back by two decoders that share no "
      "code\n"
      "with the encoder, one of them slow, for DF11 window by window as the official kernel does. Tile-ANS's "
      "bytes\n"
      "must be the reference's. With --compare these and random ones go through every path that this machine "
      "has:\n"
      "all must make the same bytes, read the same weights, and find the same faults. Exit codes: 0 all "
      "passed,\n"
      "1 something failed.");
  command->callback([arguments, &action] {
    arguments->comparison.df11 = arguments->format != "tile-ans";
    arguments->comparison.tile_ans = arguments->format != "df11";
    action = [arguments] {
      return arguments->compare ? run_comparison(arguments->comparison)
                                : run_cases(arguments->comparison.num_threads);
    };
  });
}

}  // namespace weightpress::cli
