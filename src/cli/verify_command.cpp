#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/verify.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "model/json_writer.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

using model::JsonWriter;

struct VerifyArguments {
  VerifyOptions options;
  std::string source;
  std::string level;
  std::string engine;
  std::string kernel;
  std::optional<std::uint64_t> seed;
  RunOptions run;
  bool json = false;
};

const char* level_name(VerifyLevel level) {
  switch (level) {
    case VerifyLevel::kSample:
      return "sample";
    case VerifyLevel::kFull:
      return "full";
    case VerifyLevel::kStructure:
    case VerifyLevel::kDefault:
      break;
  }
  return "structure";
}

const char* engine_name(VerifyEngine engine) {
  if (engine == VerifyEngine::kOfficial) return "official";
  return engine == VerifyEngine::kCuda ? "cuda" : "cpu";
}

const char* hashes_word(const VerifyReport& report) {
  if (report.num_hashed_files == 0) return "none";
  return report.num_hashed_files == report.num_files ? "checked" : "some";
}

void write_number(JsonWriter& out, const char* key, const std::optional<std::uint64_t>& value) {
  out.key(key);
  if (value) {
    out.value(*value);
  } else {
    out.raw("null");
  }
}

void write_text(JsonWriter& out, const char* key, const std::string& value) {
  if (value.empty()) {
    out.key(key).raw("null");
  } else {
    out.member(key, value);
  }
}

void write_kernel(JsonWriter& out, const std::optional<OfficialRun>& official) {
  out.key("kernel");
  if (!official) {
    out.raw("null");
    return;
  }
  out.begin_object(JsonWriter::Style::kOneLine)
      .member("path", official->kernel.string())
      .member("sha256", official->kernel_sha256)
      .member("known", official->is_known_kernel)
      .member("interpreted", official->is_interpreted);
  out.member("chunks", official->num_chunks).member("weights", official->num_weights);
  out.member("lane_instructions", official->lane_instructions);
  out.member("reads_past_gaps", official->reads_past_gaps);
  out.member("reads_past_output_positions", official->reads_past_output_positions);
  out.member("seconds", official->seconds).end_object();
}

std::string as_json(const VerifyReport& report, const VerifyArguments& arguments) {
  JsonWriter out(JsonWriter::Encoding::kAscii);
  out.begin_object()
      .member("path", arguments.options.path.string())
      .member("level", level_name(report.level))
      .member("engine", engine_name(report.engine))
      .member("device", report.device)
      .member("why_device", report.why_device)
      .member("verifier", report.verifier);
  write_text(out, "source", arguments.source);
  write_number(out, "seed", report.level == VerifyLevel::kSample ? std::optional(report.seed) : std::nullopt);
  out.member("ok", report.ok()).member("hashes", hashes_word(report));
  out.member("num_units", report.num_units).member("num_tensors", report.num_tensors);
  out.member("num_weights", report.num_weights).member("chunks_checked", report.chunks_checked);
  out.member("num_chunks", report.num_chunks).member("seconds", report.seconds);
  out.member("threads", report.num_threads).member("peak_memory_bytes", report.peak_memory_bytes);
  write_kernel(out, report.official);
  out.key("failures").begin_array();
  for (const VerifyFailure& failure : report.failures) {
    out.begin_object(JsonWriter::Style::kOneLine);
    write_text(out, "unit", failure.unit);
    write_text(out, "tensor", failure.tensor);
    out.member("kind", failure.kind).member("message", failure.message);
    write_number(out, "chunk", failure.chunk);
    write_number(out, "window", failure.window);
    write_number(out, "weight", failure.weight);
    out.end_object();
  }
  out.end_array().key("notes").begin_array();
  for (const std::string& text : report.notes) out.value(text);
  out.end_array().end_object();
  return std::move(out).take();
}

std::string failure_line(const VerifyFailure& failure) {
  std::string line = "FAILED  ";
  if (!failure.unit.empty()) {
    line += "unit " + failure.unit + ": ";
  } else if (!failure.tensor.empty()) {
    line += "tensor " + failure.tensor + ": ";
  }
  return model::escaped_for_terminal(line + failure.message) + "\n";
}

/// "8.1 M" and "305 M".
std::string millions(double number) {
  char text[32];
  std::snprintf(text, sizeof text, number < 1e8 ? "%.1f M" : "%.0f M", number / 1e6);
  return text;
}

std::string kernel_lines(const OfficialRun& run) {
  std::string text = "kernel       " + model::escaped_for_terminal(run.kernel.string()) +
                     (run.is_interpreted ? ", interpreted: " : ", on the GPU: ");
  text += run.is_known_kernel ? "the official one of dfloat11 0.5.0\n"
                              : "not the known one, SHA-256 " + run.kernel_sha256 + "\n";
  text += "             " + std::to_string(run.num_chunks) + " chunks of " + std::to_string(run.num_weights) +
          " weights";
  if (run.is_interpreted)
    text += ", " + millions(static_cast<double>(run.lane_instructions)) + " lane instructions";
  if (run.seconds > 0) {
    text += "; a second: " + millions(static_cast<double>(run.num_weights) / run.seconds) + " weights";
    if (run.is_interpreted)
      text += ", " + millions(static_cast<double>(run.lane_instructions) / run.seconds) + " instructions";
  }
  if (!run.is_interpreted) return text + "\n";
  return text + "\n             reads past the end: gaps " + std::to_string(run.reads_past_gaps) +
         ", output_positions " + std::to_string(run.reads_past_output_positions) + "\n";
}

std::string summary(const VerifyReport& report, const VerifyArguments& arguments) {
  std::string source;
  if (!arguments.source.empty() && report.level != VerifyLevel::kStructure) {
    source = ", against " + arguments.source;
  } else if (report.official) {
    source = ", against our own decoder";
  }
  std::string text =
      "level        " + std::string(level_name(report.level)) + model::escaped_for_terminal(source) + "\n";
  text += "units        " + std::to_string(report.num_units) + " of " + std::to_string(report.num_weights) +
          " weights; chunks decoded: " + std::to_string(report.chunks_checked) + " of " +
          std::to_string(report.num_chunks) + "\n";
  if (report.level == VerifyLevel::kSample)
    text += "seed         " + std::to_string(report.seed) + " (--seed chooses the same chunks again)\n";
  if (report.official) text += kernel_lines(*report.official);
  text += "tensors      " + std::to_string(report.num_tensors) + " outside units" +
          (arguments.source.empty() || source.empty() ? ", not compared" : "") + "\n";
  if (report.num_hashed_files != 0) {
    text += "hashes       of " + std::to_string(report.num_hashed_files) + " of " +
            std::to_string(report.num_files) + " files\n";
  }
  const std::uint64_t bytes =
      2 * report.num_weights * report.chunks_checked / std::max<std::uint64_t>(report.num_chunks, 1);
  text += "time         " + std::to_string(report.seconds).substr(0, 5) + " s on " +
          (report.device == "cpu" ? "the CPU" : report.device) + " (" + report.verifier + ") with " +
          std::to_string(report.num_threads) + " threads, " + format_rate(bytes, report.seconds) +
          " of weights, " + format_bytes(report.peak_memory_bytes) + " of memory\n";
  const std::size_t failures = report.failures.size();
  return text + "outcome      " +
         (failures == 0 ? "all that was checked holds"
                        : std::to_string(failures) + (failures == 1 ? " failure" : " failures")) +
         "\n";
}

int run(VerifyArguments& arguments) {
  VerifyOptions& options = arguments.options;
  if (!arguments.source.empty()) options.source = arguments.source;
  if (arguments.level == "structure") options.level = VerifyLevel::kStructure;
  if (arguments.level == "sample") options.level = VerifyLevel::kSample;
  if (arguments.level == "full") options.level = VerifyLevel::kFull;
  if (arguments.engine == "cpu") options.engine = VerifyEngine::kCpu;
  if (arguments.engine == "cuda") options.engine = VerifyEngine::kCuda;
  if (arguments.engine == "official") options.engine = VerifyEngine::kOfficial;
  if (!arguments.kernel.empty()) options.kernel = arguments.kernel;
  options.device = arguments.run.device;
  options.seed = arguments.seed;
  ProgressPrinter progress(arguments.run.progress_mode());
  options.on_warning = [&progress](const std::string& warning) {
    progress.clear();
    note(warning);
  };
  options.on_progress = [&progress](const VerifyProgress& state) {
    progress.show(
        {"verifying", state.unit, state.units_done, state.num_units, state.bytes_done, state.total_bytes});
  };
  const VerifyReport report = verify(options);
  progress.clear();
  for (const std::string& text : report.notes) note(text);
  if (arguments.run.verbose) note("device: " + report.device + ", since " + report.why_device);
  if (arguments.json) {
    print(as_json(report, arguments));
  } else {
    for (const VerifyFailure& failure : report.failures) print(failure_line(failure));
    if (!arguments.run.quiet) print(summary(report, arguments));
  }
  return report.ok() ? kExitDone : kExitCorrupt;
}

}  // namespace

void add_verify_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<VerifyArguments>();
  VerifyOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("verify", "Check that an output is sound, and holds its source");
  command
      ->add_option("OUT", options.path,
                   "a folder of .safetensors files, or one, of any DF11 or Tile-ANS compressor")
      ->required();
  command->add_option("--source", arguments->source, "compare with what it was made from")
      ->option_text("SOURCE");
  command
      ->add_option("--level", arguments->level,
                   "default: full with --source or --engine=official, else structure")
      ->check(CLI::IsMember({"structure", "sample", "full"}))
      ->option_text("structure|sample|full");
  command
      ->add_option("--engine", arguments->engine,
                   "cpu, cuda: our decoder there; official: also dfloat11's own decode kernel")
      ->check(CLI::IsMember({"cpu", "cuda", "official"}))
      ->option_text("cpu|cuda|official");
  command->add_option("--kernel", arguments->kernel, "decode.ptx, where --engine=official does not find it")
      ->option_text("PATH");
  command->add_option("--samples", options.samples, "chunks that the level sample compares (default 1000)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
      ->option_text("N");
  command->add_option("--seed", arguments->seed, "choose the same chunks as another run")->option_text("K");
  command
      ->add_option("--arch", options.arch, "which tensors a unit holds: a definition's name, a file, or auto")
      ->capture_default_str()
      ->type_name("NAME");
  add_machine_options(*command, arguments->run, options.num_threads, "the outcome");
  command->add_flag("--json", arguments->json, "one JSON object with every failure");
  add_progress_options(*command, arguments->run, "no progress, no summary: failures only");
  command->add_flag("-v,--verbose", arguments->run.verbose, "say which device decodes, and why");
  command->footer(
      "Example:\n  weightpress verify Qwen3-8B-DF11 --source Qwen3-8B\n\n"
      "structure: all that needs no source, also whether the official kernel can take it. sample: some\n"
      "chunks of each unit. full: every weight and tensor.\n"
      "Exit codes: 0 all holds, 1 something does not, 2 it could not be told, 130 interrupted.");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace weightpress::cli
