// Arbitrary text as config.json: refused, or the result is JSON whose dfloat11_config is the definition's and
// whose other members are the source's.
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

#include "model/config_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightpress::model;
  const std::string text(reinterpret_cast<const char*>(data), size);
  ModelDefinition definition;
  definition.pattern_dict = {{"lm_head", {}}, {"layers\\.\\d+", {"a", "b"}}};
  const auto spliced = splice_dfloat11_config(text, definition, "config.json");
  if (!spliced) return 0;
  // NaN and Infinity are Python's additions: the library cannot read them back.
  nlohmann::json before = nlohmann::json::parse(text, nullptr, false);
  if (before.is_discarded()) return 0;
  nlohmann::json after = nlohmann::json::parse(*spliced);
  if (after.at("dfloat11_config").at("pattern_dict").size() != 2) std::abort();
  before.erase("dfloat11_config");
  after.erase("dfloat11_config");
  if (before != after) std::abort();
  if (*splice_dfloat11_config(*spliced, definition, "config.json") != *spliced) std::abort();
  return 0;
}
