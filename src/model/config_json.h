// Puts `dfloat11_config` into a model's config.json, and takes it out again.
//
// In the diffusers layouts it is a new object. Else the source's bytes are kept, not re-written: numbers keep
// their spelling and keys their order, which a JSON library would not promise (1e5 becomes 100000.0). So the
// text is validated and scanned, and one member is spliced in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.h"
#include "model/definition.h"

namespace weightpress::model {

/// `source_config`: the text of a config.json, or nothing for a new object. dfloat11_config becomes the last
/// member; one that the object has is removed. NaN and Infinity, which Python writes, are kept. Errors:
/// kCorruptFile, naming `file_name`.
Result<std::string> splice_dfloat11_config(const std::optional<std::string>& source_config,
                                           const ModelDefinition& definition, const std::string& file_name);

/// A new object of these two keys (the first only if there is one), as Python's json.dump(indent=2) writes
/// it.
std::string make_diffusers_config(const std::optional<std::string>& model_type,
                                  const ModelDefinition& definition);

/// What is left of a config.json.
struct PlainConfig {
  bool had_dfloat11_config = false;
  /// pattern_dict of the dfloat11_config, sorted by pattern; empty if there is none.
  std::vector<UnitPattern> pattern_dict;
  std::string text;              ///< without dfloat11_config: what splice_dfloat11_config() was given
  bool describes_model = false;  ///< the text has more members than model_type
};

/// Undoes splice_dfloat11_config(). Whether there was a line break before the last brace is not known then:
/// it is taken to have been there unless all else stands on one line. Errors: kCorruptFile, naming
/// `file_name`.
Result<PlainConfig> remove_dfloat11_config(const std::string& config, const std::string& file_name);

}  // namespace weightpress::model
