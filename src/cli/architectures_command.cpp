#include <algorithm>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <weightpress/error.h>

#include "cli/commands.h"
#include "cli/console.h"
#include "job/model_plan.h"
#include "model/architectures.h"
#include "model/checkpoint.h"
#include "model/json_writer.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

using model::escaped_for_terminal;
using model::JsonWriter;

int list(bool json) {
  const auto architectures = model::list_architectures();
  if (json) {
    JsonWriter out(JsonWriter::Encoding::kAscii);
    out.begin_array();
    for (const model::Architecture& architecture : architectures) {
      const model::ModelDefinition definition = model::parse_architecture(architecture);
      out.begin_object(JsonWriter::Style::kOneLine).member("name", definition.name);
      out.member("layout", definition.layout).member("family", definition.family);
      out.member("detected", !definition.detection.empty())
          .member("origin", architecture.origin)
          .end_object();
    }
    out.end_array();
    print(std::move(out).take());
    return kExitDone;
  }
  std::size_t width = 0;
  for (const model::Architecture& architecture : architectures)
    width = std::max(width, architecture.name.size());
  for (const model::Architecture& architecture : architectures) {
    const model::ModelDefinition definition = model::parse_architecture(architecture);
    std::string line =
        architecture.name + std::string(width + 2 - architecture.name.size(), ' ') + definition.layout;
    if (definition.detection.empty()) line += ", by name only";
    if (architecture.origin != model::kBuiltInOrigin) line += ", from " + architecture.origin;
    print(escaped_for_terminal(line) + "\n");
  }
  return kExitDone;
}

int show(const std::string& name) {
  const std::string text = model::names_definition_file(name) ? model::read_definition_text(name)
                                                              : model::find_architecture(name).text;
  model::parse_definition(text, name);  // what is not a definition is not shown as one
  print(text);
  return kExitDone;
}

int detect(const std::string& source, bool json) {
  const model::Checkpoint checkpoint = model::Checkpoint::open(source);
  const job::ModelPlan plan = job::plan_model(checkpoint, {});
  std::uint64_t unit_weights = 0;
  for (const model::Unit& unit : plan.assignment.units) unit_weights += unit.num_weights;
  if (json) {
    JsonWriter out(JsonWriter::Encoding::kAscii);
    out.begin_object().member("definition", plan.definition.name).member("layout", plan.definition.layout);
    out.member("units", plan.assignment.units.size()).member("unit_weights", unit_weights);
    out.member("why", plan.why).key("also_fits").begin_array();
    for (const model::AlsoFits& other : plan.also_fits) {
      out.begin_object(JsonWriter::Style::kOneLine).member("name", other.name);
      out.member("same_bytes", other.same_bytes).member("difference", other.difference).end_object();
    }
    out.end_array().end_object();
    print(std::move(out).take());
    return kExitDone;
  }
  std::string text = "definition   " + plan.definition.name + ", since " + plan.why + "\n" + "layout       " +
                     plan.definition.layout + "\n" + "units        " +
                     std::to_string(plan.assignment.units.size()) + " of " + std::to_string(unit_weights) +
                     " weights\n";
  const char* label = "also fits    ";
  for (const model::AlsoFits& other : plan.also_fits) {
    text += label + other.name + ": " + other.difference + "\n";
    label = "             ";
  }
  print(text);
  return kExitDone;
}

}  // namespace

void add_architectures_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("architectures", "List, show and detect model definitions");
  command->require_subcommand(1);
  command->footer(
      "Example:\n  weightpress architectures detect FLUX.1-dev\n\n"
      "A definition says which modules of a model are compressed together. More are taken from the\n"
      "folder that WEIGHTPRESS_ARCH_DIR names, NAME.json each.");

  auto json = std::make_shared<bool>(false);
  auto name = std::make_shared<std::string>();
  CLI::App* list_command = command->add_subcommand("list", "All definitions that --arch can name");
  list_command->add_flag("--json", *json, "as JSON");
  list_command->callback([json, &action] { action = [json] { return list(*json); }; });

  CLI::App* show_command = command->add_subcommand("show", "Print a definition");
  show_command->add_option("NAME", *name, "its name, or a file")->required();
  show_command->callback([name, &action] { action = [name] { return show(*name); }; });

  CLI::App* detect_command =
      command->add_subcommand("detect", "Say which definition belongs to a model, and why");
  detect_command->add_option("SOURCE", *name, "a .safetensors file, or a folder of them")->required();
  detect_command->add_flag("--json", *json, "as JSON");
  detect_command->callback([name, json, &action] { action = [name, json] { return detect(*name, *json); }; });
}

}  // namespace weightpress::cli
