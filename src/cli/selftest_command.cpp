#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/selftest.h>

#include "cli/commands.h"
#include "cli/console.h"

namespace weightpress::cli {

void add_selftest_command(CLI::App& app, Action& action) {
  auto threads = std::make_shared<int>(0);
  CLI::App* command = app.add_subcommand("selftest", "Check the codec of this machine on built-in units");
  command->add_option("--threads", *threads, "CPU threads (default: all)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->footer(
      "Example:\n  weightpress selftest\n\n"
      "Built-in units are encoded and read back by two decoders that share no code with the encoder,\n"
      "one of them slow, window by window as the official kernel does. Exit codes: 0 all passed, 1 something "
      "failed.");
  command->callback([threads, &action] {
    action = [threads] {
      int failed = 0;
      const std::vector<SelftestCase> cases = run_selftest(*threads);
      for (const SelftestCase& test : cases) {
        failed += !test.passed;
        print((test.passed ? "ok      " : "FAILED  ") + test.name + (test.passed ? "" : ": " + test.problem) +
              "\n");
      }
      print(std::to_string(cases.size() - static_cast<std::size_t>(failed)) + " passed, " +
            std::to_string(failed) + " failed\n");
      return failed == 0 ? kExitDone : kExitCorrupt;
    };
  });
}

}  // namespace weightpress::cli
