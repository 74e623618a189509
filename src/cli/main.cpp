// weightpress: parses the command line, runs the command, turns errors into one sentence and an exit code.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/resource.h>
#include <unistd.h>

#include <weightpress/error.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

int exit_code_of(ErrorCode code) {
  return code == ErrorCode::kCorruptFile || code == ErrorCode::kVerificationFailed ? kExitCorrupt
                                                                                   : kExitImpossible;
}

int fail(const std::string& message, int code) {
  std::fprintf(stderr, "weightpress: %s\n", model::escaped_for_terminal(message).c_str());
  return code;
}

/// Prints a failure of the parser, or the help that was asked for.
int show_parse_result(const CLI::App& app, const CLI::ParseError& result) {
  if (result.get_exit_code() == 0) {
    app.exit(result);
    return finish_output() ? kExitDone : kExitImpossible;
  }
  const CLI::App* command = &app;
  for (const CLI::App* sub : app.get_subcommands()) command = sub;
  const std::string help =
      command == &app ? "weightpress --help" : "weightpress " + command->get_name() + " --help";
  return fail(std::string(result.what()) + " (see " + help + ")", kExitImpossible);
}

/// A file of the output must not get the number of a standard stream that the caller has closed.
void open_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != descriptor) std::abort();
  }
}

// For the signal handler.
std::atomic<const std::string*> unfinished_output = nullptr;
std::atomic<bool> unfinished_can_resume = false;

void write_to_stderr(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

/// Ctrl-C and SIGTERM. Only calls that a signal handler may make. Ending at once is clean: what a journal
/// tells of is in the file system already.
void on_interrupt(int) {
  const std::string* path = unfinished_output.load();
  write_to_stderr("\nweightpress: interrupted");
  if (path != nullptr && ::access(path->c_str(), F_OK) == 0) {
    write_to_stderr("; what was done so far is in ");
    write_to_stderr(*path);
    write_to_stderr(unfinished_can_resume.load() ? ": run the same command again to go on"
                                                 : ", which the next run removes");
  }
  write_to_stderr("\n");
  ::_exit(kExitInterrupted);
}

/// Large blocks go back to the system when they are freed, and threads share few heaps: --ram bounds the
/// whole process.
void keep_memory_small() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 256 * 1024);
  ::mallopt(M_TRIM_THRESHOLD, 1024 * 1024);
  ::mallopt(M_ARENA_MAX, 2);
#endif
}

/// Models come in hundreds of files, which stay open.
void raise_file_limit() {
  struct rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Names a command that does not exist; the parser would only say that one is missing. Empty: all exist.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  const CLI::App* parent = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto commands = parent->get_subcommands([](const CLI::App*) { return true; });
    if (commands.empty() || word.starts_with('-')) return {};
    const auto found =
        std::ranges::find(commands, word, [](const CLI::App* command) { return command->get_name(); });
    if (found != commands.end()) {
      parent = *found;
      continue;
    }
    std::string message = "there is no command '" + word + "'; there are";
    for (const CLI::App* command : commands) message += " " + command->get_name();
    return message;
  }
  return {};
}

int run(int argc, char** argv) {
  CLI::App app{"Lossless compression of model weights (DF11, Tile-ANS)", "weightpress"};
  app.set_version_flag("--version", "weightpress " WP_VERSION);
  app.require_subcommand(1);
  app.footer("Example:\n  weightpress compress Qwen3-8B -o Qwen3-8B-DF11");
  Action action;
  add_compress_command(app, action);
  add_estimate_command(app, action);
  add_decompress_command(app, action);
  add_devices_command(app, action);
  add_inspect_command(app, action);
  add_architectures_command(app, action);
  add_verify_command(app, action);
  add_selftest_command(app, action);
  if (const std::string unknown = unknown_command(app, argc, argv); !unknown.empty())
    return fail(unknown, kExitImpossible);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& result) {
    return show_parse_result(app, result);
  }
  const int code = action();
  if (!finish_output())
    return fail("the command is done, but standard output could not be written", kExitImpossible);
  return code;
}

}  // namespace

void set_unfinished_output(const std::string& path, bool can_resume) {
  // The handler may read it at any moment: it does not change while it is pointed at.
  static std::string stored;
  unfinished_output.store(nullptr);
  if (path.empty()) return;
  stored = path;
  unfinished_can_resume.store(can_resume);
  unfinished_output.store(&stored);
}

}  // namespace weightpress::cli

int main(int argc, char** argv) {
  using namespace weightpress;
  using namespace weightpress::cli;
  keep_memory_small();
  open_standard_streams();
  // Writes past a limit or into a closed pipe are errors with a message, not a silent death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  raise_file_limit();
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return fail(error.what(), exit_code_of(error.code()));
  } catch (const std::bad_alloc&) {
    return fail("there is not enough memory: close other programs or use a machine with more",
                kExitImpossible);
  } catch (const std::exception& error) {
    return fail(error.what(), kExitImpossible);
  }
}
