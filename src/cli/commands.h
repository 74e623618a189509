// The program's commands: each adds its options to the parser and says what to run.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace weightpress::cli {

// Exit codes (docs/cli.md).
inline constexpr int kExitDone = 0;
inline constexpr int kExitCorrupt = 1;        // a file is corrupt, or a check failed
inline constexpr int kExitImpossible = 2;     // usage, missing files, what the format cannot hold, no space
inline constexpr int kExitInterrupted = 130;  // Ctrl-C or SIGTERM

/// What a command does once its options are read; returns the exit code. May throw Error.
using Action = std::function<int()>;

/// What an interruption leaves behind and must name; empty: nothing. can_resume: whether the same command
/// then goes on with it.
void set_unfinished_output(const std::string& path, bool can_resume);

/// Each sets `action` when its command was given.
void add_architectures_command(CLI::App& app, Action& action);
void add_compress_command(CLI::App& app, Action& action);
void add_decompress_command(CLI::App& app, Action& action);
void add_devices_command(CLI::App& app, Action& action);
void add_estimate_command(CLI::App& app, Action& action);
void add_inspect_command(CLI::App& app, Action& action);
void add_selftest_command(CLI::App& app, Action& action);
void add_verify_command(CLI::App& app, Action& action);

}  // namespace weightpress::cli
