// What lies beside an output and tells about it: weightpress.json, and dfloat11_config in config.json.
//
// Neither is needed to read units, and either may be of another maker or broken; whoever asks decides what
// that is worth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/result.h"

namespace weightpress::model {

/// The part of weightpress.json that tells what the output is; docs/cli.md names its keys.
struct OutputRecord {
  struct KeptUnit {
    std::string unit;
    std::string reason;
  };
  struct OwnCoding {
    std::string unit;
    std::vector<std::string> reasons;
  };

  std::string weightpress;     ///< the version that wrote it
  std::string definition;      ///< its name
  std::string format_version;  ///< of the definition
  std::uint64_t num_patterns = 0;
  std::string layout;
  std::vector<KeptUnit> kept_units;   ///< not compressed, and why
  std::vector<OwnCoding> own_coding;  ///< units whose bytes are not the official ones, and why
  std::vector<std::string> units;     ///< that the output holds; sorted, each once
  std::vector<std::string> tensors;   ///< that the output holds outside units; sorted
};

/// Errors: kCorruptFile, naming `file_name` and the key that is missing or not what it should be.
Result<OutputRecord> parse_output_record(const std::string& text, const std::string& file_name);

struct Dfloat11Config {
  std::string version;
  std::uint64_t num_patterns = 0;
};

/// The dfloat11_config of a config.json. Errors: kCorruptFile (not JSON, or the member is not what it should
/// be), kNotFound (the object has none).
Result<Dfloat11Config> parse_dfloat11_config(const std::string& text, const std::string& file_name);

}  // namespace weightpress::model
