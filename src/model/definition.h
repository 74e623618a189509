// A model definition: which modules of a model become units, and how names and files are treated.
//
// Definitions are JSON files of facts. Every order in them is significant: of the patterns (order of units
// and of config.json) and of each pattern's attributes (order of the tensors inside a unit). The loader takes
// the file at its word and is strict, since a misspelt key would silently change what is written.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weightpress::model {

struct UnitPattern {
  std::string pattern;  ///< matched by Python's re.fullmatch against module names
  std::vector<std::string>
      attributes;  ///< sub-modules whose weights form the unit; empty: the module's own weight
};

/// Replaces the first match of a regular expression in a tensor's name.
struct RenameRule {
  std::string pattern;
  std::string replacement;
};

/// One way to know a model: all conditions must hold.
struct DetectionRule {
  std::vector<std::string> all;   ///< tensors that must be there, named as key rules leave them
  std::vector<std::string> none;  ///< tensors that must not be there
  /// Keys of config.json whose value, a string, must match a regular expression.
  std::vector<std::pair<std::string, std::string>> config;
};

struct ModelDefinition {
  std::string name;
  std::string layout;  ///< "transformers", "diffusers", "diffusers-single" or "comfyui"
  std::string family;
  std::vector<DetectionRule> detection;  ///< any of them; empty: chosen by name only
  std::vector<std::string> strip_prefixes;
  std::vector<UnitPattern> pattern_dict;

  // From `rules`.
  std::string format_version = "0.5.0";                  ///< for config.json
  std::vector<std::uint64_t> threads_per_block = {512};  ///< for config.json; the format fixes it
  std::uint64_t bytes_per_thread = 8;                    ///< for config.json; the format fixes it
  std::vector<std::string> drop;        ///< regular expressions (search) of tensors to leave out
  std::vector<RenameRule> rename;       ///< applied in order
  std::string keep_only_prefix;         ///< where a tensor's name begins with it, only such tensors are kept
  bool tied_lm_head = false;            ///< an absent lm_head is made from the embedding
  std::string file;                     ///< name of the single file; empty: the layout's own
  std::vector<std::string> keep_dtype;  ///< regular expressions of tensors that a cast leaves alone
};

inline constexpr std::array<std::string_view, 4> kLayouts = {"transformers", "diffusers", "diffusers-single",
                                                             "comfyui"};

/// Whether a layout puts everything into one file.
bool is_single_file(std::string_view layout);

/// The text of a definition's file. Throws what File throws; kCorruptFile if it is too long to be one.
std::string read_definition_text(const std::filesystem::path& path);

/// Throws kBadDefinition with file and key if the content is wrong, what File throws if it cannot be read.
ModelDefinition load_definition(const std::filesystem::path& path);

/// The same for a text; `source_name` stands for the file in messages.
ModelDefinition parse_definition(const std::string& text, const std::string& source_name);

}  // namespace weightpress::model
