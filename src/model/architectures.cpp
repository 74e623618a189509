#include "model/architectures.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <system_error>
#include <utility>

#include <weightpress/error.h>

#include "model/embedded_architectures.h"
#include "model/file.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".json";

/// Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row[b.size()];
}

void add_folder(const fs::path& folder, std::map<std::string, Architecture, std::less<>>& found) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') || !name.ends_with(kSuffix)) continue;
    const std::string stem = name.substr(0, name.size() - kSuffix.size());
    found[stem] = {stem, entry->path().string(), read_definition_text(entry->path())};
  }
  if (error) {
    throw Error(ErrorCode::kNotFound, printable(folder.native()) + ", which " + kArchitecturesVariable +
                                          " names, cannot be listed: " + error.message());
  }
}

std::map<std::string, Architecture, std::less<>> all_architectures() {
  std::map<std::string, Architecture, std::less<>> found;
  for (const auto& [name, text] : kEmbeddedArchitectures)
    found[std::string(name)] = {std::string(name), kBuiltInOrigin, std::string(text)};
  if (const char* folder = std::getenv(kArchitecturesVariable); folder != nullptr && *folder != '\0')
    add_folder(folder, found);
  return found;
}

}  // namespace

std::vector<Architecture> list_architectures() {
  std::vector<Architecture> list;
  for (auto& [name, architecture] : all_architectures()) list.push_back(std::move(architecture));
  return list;
}

Architecture find_architecture(std::string_view name) {
  auto all = all_architectures();
  if (const auto found = all.find(name); found != all.end()) return std::move(found->second);

  std::vector<std::pair<std::size_t, std::string>> alike;
  for (const auto& [known, architecture] : all) {
    const bool contains = !name.empty() && known.find(name) != known.npos;
    alike.emplace_back(contains ? 0 : edit_distance(name.substr(0, 100), known), known);
  }
  std::ranges::sort(alike);
  // Where names contain what was given, others are noise.
  if (const auto other = std::ranges::find_if(alike, [](const auto& entry) { return entry.first != 0; });
      other != alike.begin())
    alike.erase(other, alike.end());
  std::string message = "there is no definition " + in_quotes(name);
  for (std::size_t i = 0; i < std::min<std::size_t>(alike.size(), 3); ++i)
    message += (i == 0 ? ": did you mean " : i == 1 ? ", " : " or ") + in_quotes(alike[i].second);
  throw Error(ErrorCode::kNotFound,
              message + "? 'weightpress architectures list' shows all; a file is given as FILE.json");
}

bool names_definition_file(std::string_view arch) {
  return arch.ends_with(kSuffix) || arch.find('/') != arch.npos;
}

ModelDefinition parse_architecture(const Architecture& architecture) {
  ModelDefinition definition = parse_definition(
      architecture.text, architecture.origin == kBuiltInOrigin ? architecture.name : architecture.origin);
  if (definition.name != architecture.name) {
    throw Error(ErrorCode::kBadDefinition, printable(architecture.origin) + ": holds the definition " +
                                               in_quotes(definition.name) +
                                               ": name the file after its definition");
  }
  return definition;
}

ModelDefinition load_architecture(const std::string& arch) {
  return names_definition_file(arch) ? load_definition(arch) : parse_architecture(find_architecture(arch));
}

}  // namespace weightpress::model
