// The definitions that come with the program (architectures/*.json, compiled in), and those of a user's
// folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/definition.h"

namespace weightpress::model {

/// A folder of definitions, NAME.json each, that add to the built-in ones or replace them.
inline constexpr const char* kArchitecturesVariable = "WEIGHTPRESS_ARCH_DIR";

/// Stands for the file in Architecture::origin.
inline constexpr const char* kBuiltInOrigin = "built in";

struct Architecture {
  std::string name;
  std::string origin;  ///< path of the file, or kBuiltInOrigin
  std::string text;    ///< the JSON
};

/// All that can be named, sorted by name. Throws what reading the user's folder throws, and kBadDefinition if
/// a file there does not hold the definition that its name says.
std::vector<Architecture> list_architectures();

/// The one of that name. Throws kNotFound, with the names that are most alike.
Architecture find_architecture(std::string_view name);

/// Throws kBadDefinition.
ModelDefinition parse_architecture(const Architecture& architecture);

/// Whether `arch` (the option --arch) names a file: it ends in .json or holds a '/'.
bool names_definition_file(std::string_view arch);

/// The definition that `arch` names: a file, or one of list_architectures(). Not "auto".
ModelDefinition load_architecture(const std::string& arch);

}  // namespace weightpress::model
