#include <algorithm>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/devices.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "model/json_writer.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

std::string as_json(const DevicesReport& report) {
  model::JsonWriter json;
  json.begin_object().member("has_kernels", report.has_kernels);
  if (!report.has_kernels) json.member("why_no_kernels", report.why_no_kernels);
  json.key("driver").begin_object().member("path", report.driver_path).member("cuda", report.driver_cuda);
  json.member("problem", report.why_no_driver).end_object();
  json.key("devices").begin_array();
  for (const DeviceReport& device : report.devices) {
    json.begin_object()
        .member("number", device.number)
        .member("name", device.name)
        .member("arch", device.arch);
    json.member("memory_bytes", device.memory_bytes).member("free_bytes", device.free_bytes);
    json.member("multiprocessors", device.num_multiprocessors)
        .member("copy_engines", device.num_copy_engines);
    json.member("kernels", device.kernels)
        .member("usable", device.problem.empty())
        .member("problem", device.problem);
    json.key("notes").begin_array();
    for (const std::string& text : device.notes) json.value(text);
    json.end_array().end_object();
  }
  json.end_array().key("cpu").begin_object().member("name", report.cpu).member("threads", report.cpu_threads);
  json.end_object().end_object();
  return std::move(json).take();
}

std::string as_text(const DevicesReport& report) {
  std::string text = "driver   ";
  text += report.why_no_driver.empty()
              ? model::escaped_for_terminal(report.driver_path) + ", for CUDA " + report.driver_cuda
              : model::escaped_for_terminal(report.why_no_driver);
  text += "\nkernels  " + (report.has_kernels ? "built in" : report.why_no_kernels) + "\n";
  for (const DeviceReport& device : report.devices) {
    text += "cuda:" + std::to_string(device.number) + "   " +
            (device.name.empty() ? "unknown" : model::escaped_for_terminal(device.name));
    if (!device.arch.empty()) {
      text += ", " + device.arch + ", " + std::to_string(device.num_multiprocessors) + " multiprocessors, " +
              format_bytes(device.memory_bytes);
      if (device.free_bytes != 0) text += " (" + format_bytes(device.free_bytes) + " free)";
    }
    text += "\n         " +
            (device.problem.empty() ? "works, tried with the " + device.kernels
                                    : "cannot be used: " + model::escaped_for_terminal(device.problem)) +
            "\n";
    for (const std::string& note : device.notes)
      text += "         note: " + model::escaped_for_terminal(note) + "\n";
  }
  text += "cpu      " + model::escaped_for_terminal(report.cpu) + ", " + std::to_string(report.cpu_threads) +
          " threads\n";
  const auto usable = std::find_if(report.devices.begin(), report.devices.end(),
                                   [](const DeviceReport& device) { return device.problem.empty(); });
  if (usable == report.devices.end()) return text + "used     the CPU by every command\n";
  return text + "used     cuda:" + std::to_string(usable->number) +
         " by compress, estimate, verify and decompress, the CPU by other commands\n";
}

}  // namespace

void add_devices_command(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("devices", "Show the GPUs, and whether they can be used");
  command->add_flag("--json", *json, "one JSON object");
  command->footer(
      "Example:\n  weightpress devices\n\n"
      "Each GPU gets the kernels of this build, and compares two buffers of 1 MiB with one of them.\n"
      "Exit code: 0, also without a GPU.");
  command->callback([json, &action] {
    action = [json] {
      const DevicesReport report = list_devices();
      print(*json ? as_json(report) : as_text(report));
      return kExitDone;
    };
  });
}

}  // namespace weightpress::cli
