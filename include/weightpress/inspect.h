// Tells what a checkpoint, or a DF11 or Tile-ANS output holds, from headers and the small buffers; weights
// are not read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <weightpress/error.h>

namespace weightpress {

struct InspectOptions {
  std::filesystem::path path;  ///< a .safetensors file, or a folder of them with or without an index
};

struct InspectedFile {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::uint64_t num_tensors = 0;
  bool has_metadata = false;
};

/// All tensors of a dtype.
struct DtypeTotal {
  std::string dtype;  ///< as the header calls it
  std::uint64_t num_tensors = 0;
  std::uint64_t num_elements = 0;
  std::uint64_t size_bytes = 0;
};

struct InspectedUnit {
  std::string name;
  std::uint64_t num_weights = 0;
  std::uint64_t num_tensors = 0;  ///< that were concatenated
  std::uint64_t size_bytes = 0;   ///< of its six buffers
  std::uint64_t num_tables = 0;
  unsigned shortest_code_bits = 0;
  unsigned longest_code_bits = 0;
  unsigned num_exponents = 0;  ///< that have a code

  double bits_per_weight() const {
    return 8 * static_cast<double>(size_bytes) / static_cast<double>(num_weights);
  }
};

/// A tensor in a container of Tile-ANS.
struct InspectedTileAns {
  std::string name;
  std::string dtype;  ///< as headers of safetensors call it
  std::vector<std::uint64_t> shape;
  std::uint64_t num_elements = 0;
  std::uint64_t source_bytes = 0;  ///< as it was
  std::uint64_t size_bytes = 0;    ///< of buffers and header
  bool is_raw = false;             ///< stored as it was, in a raw container: what follows is 0
  std::uint64_t tile_elements = 0;
  std::uint32_t probability_bits = 0;
  std::uint32_t num_lanes = 0;      ///< bytes of an element
  std::uint32_t num_raw_lanes = 0;  ///< that are not coded

  double bits_per_element() const {
    return num_elements == 0 ? 0 : 8 * static_cast<double>(size_bytes) / static_cast<double>(num_elements);
  }
};

/// What weightpress.json says of an output.
struct InspectedRecord {
  struct KeptUnit {
    std::string unit;
    std::string reason;
  };
  struct OwnCoding {
    std::string unit;
    std::vector<std::string> reasons;
  };

  std::string file;         ///< its name
  std::string weightpress;  ///< the version that wrote the output
  std::string definition;
  std::string format_version;
  std::uint64_t num_patterns = 0;
  std::string layout;
  std::vector<KeptUnit> kept_units;   ///< what could not be stored as DF11 and why
  std::vector<OwnCoding> own_coding;  ///< units whose bytes are not the official ones and why
};

/// dfloat11_config in config.json.
struct InspectedConfig {
  std::string version;
  std::uint64_t num_patterns = 0;
};

/// What compress would make of a source.
struct InspectedSource {
  std::string definition;  ///< its name
  std::uint64_t num_units = 0;
  std::uint64_t unit_weights = 0;  ///< of all units
};

/// Sizes are bytes of tensors (headers not counted) where nothing else is said.
struct InspectReport {
  std::vector<InspectedFile> files;        ///< sorted by name
  std::vector<InspectedUnit> units;        ///< none: not DF11. By name, numbers counted ("9" before "10")
  std::vector<InspectedTileAns> tile_ans;  ///< none: not Tile-ANS. In the same order; then there are no units
  std::vector<DtypeTotal> tensors;         ///< outside units and containers; the largest total first
  std::optional<InspectedSource> source;   ///< if the path is no DF11 and a definition fits it
  std::optional<InspectedRecord> record;   ///< if there is one that can be read
  std::optional<InspectedConfig> config;   ///< the same
  std::vector<std::string> notes;          ///< sentences: side files that are of no use, what is not here

  bool is_df11() const { return !units.empty(); }
  bool is_tile_ans() const { return !tile_ans.empty(); }
  std::uint64_t file_bytes() const;    ///< of whole files
  std::uint64_t num_weights() const;   ///< of all units
  std::uint64_t unit_bytes() const;    ///< of all units
  std::uint64_t tensor_bytes() const;  ///< outside units
  std::uint64_t bf16_bytes() const;    ///< units as BF16 and the tensors outside them
  /// Tensors as they are, against bf16_bytes(); 1 if there are none.
  double ratio() const;
};

/// Inspects `options.path`. Side files (weightpress.json, config.json) that are broken or of another maker
/// are noted and change nothing else. Throws Error: kNotFound, kUsage (neither .safetensors nor a folder,
/// several indexes), kNameConflict (a tensor in two files), kCorruptFile (headers, buffers of a unit), kIo,
/// kOutOfMemory. Thread-safe.
InspectReport inspect(const InspectOptions& options);

}  // namespace weightpress
