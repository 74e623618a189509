// Turns a DF11 or Tile-ANS output back into an ordinary safetensors checkpoint.
//
// Tile-ANS needs no more than its files: a tensor comes back into the file that its container's header is in.
// With weightpress.json beside the output, tensors come back under their old names, in their old shapes and
// files. DF11 itself stores neither names nor shapes of a unit's tensors: without the record, names come from
// a definition, and shapes from whoever knows them. Options have the names of the program's (docs/cli.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <weightpress/error.h>

namespace weightpress {

enum class DecompressPhase : std::uint8_t {
  kDecoding,  ///< units
  kCopying    ///< tensors outside units
};

/// Where a run is. Called from the thread that called decompress().
struct DecompressProgress {
  DecompressPhase phase = DecompressPhase::kDecoding;
  std::string unit;  ///< the one in work; empty while tensors are copied
  std::uint64_t units_done = 0;
  std::uint64_t num_units = 0;
  std::uint64_t bytes_done = 0;  ///< of the tensors that are written
  std::uint64_t total_bytes = 0;
};

struct DecompressReport;

struct DecompressOptions {
  std::filesystem::path source;  ///< a DF11 or Tile-ANS output of any maker: a folder, or a .safetensors file
  /// A folder; if one file results, also a file that ends in .safetensors. Appears complete, by one rename
  /// out of `<output>.partial`.
  std::filesystem::path output;
  /// The definition that names tensors if there is no record: a name, a JSON file, or "auto": the
  /// dfloat11_config of config.json, or detection.
  std::string arch = "auto";
  /// Shapes if there is no record: a safetensors file or folder (headers are read), or a .json file (an
  /// object {name: [shape]} or {name: {"shape": [shape]}}). Empty: tensors of units are written flat.
  std::filesystem::path source_shapes = {};
  bool force = false;   ///< replace an output of an earlier run
  int num_threads = 0;  ///< 0: as many as the machine has; the bytes do not depend on it
  /// What decodes units. "cpu"; "cuda" or "cuda:N": a GPU, and kDeviceFailed if it cannot be used or fails;
  /// "auto": the first GPU that can be used, and the CPU if there is none or it fails. The bytes do not
  /// depend on it.
  std::string device = "auto";
  std::function<void(const DecompressProgress&)> on_progress = {};
  /// Called once before anything is written, with what is settled by then: all but bytes, time and memory.
  std::function<void(const DecompressReport&)> on_planned = {};
  /// Called with a sentence when a GPU fails and the CPU goes on.
  std::function<void(const std::string&)> on_warning = {};
};

struct DecompressReport {
  bool is_tile_ans = false;        ///< containers tell names, dtypes and shapes; there is no record
  std::string record;              ///< the path of the record that was used; empty: none
  std::vector<std::string> files;  ///< names of the .safetensors files
  std::uint64_t num_units = 0;
  std::uint64_t num_tensors = 0;  ///< that are written

  /// A tensor of the source that the output does not hold.
  struct Dropped {
    std::string tensor;
    std::string reason;  ///< a clause
  };
  std::vector<Dropped> dropped;
  /// A tensor that the output holds as BF16, and so comes back as BF16.
  struct Cast {
    std::string tensor;
    std::string source_dtype;
  };
  std::vector<Cast> cast;

  std::vector<std::string> notes;  ///< sentences
  std::uint64_t source_bytes = 0;  ///< all tensors of the DF11 output
  std::uint64_t output_bytes = 0;  ///< all files
  double seconds = 0;
  int num_threads = 0;
  std::string device;      ///< "cpu", or e.g. "cuda:0 (NVIDIA H200, cubin for sm_90)"; what was used last
  std::string why_device;  ///< a clause
  std::string decoder;     ///< of the units: "host decoder", or "wp_decode" (a kernel)
  std::uint64_t peak_memory_bytes = 0;  ///< of the process so far; 0 where the system does not tell
  /// With force: why the output that was replaced is still there; empty: it is not.
  std::string old_output_left;
  bool removed_remains = false;  ///< of an earlier, broken run
};

/// Decompresses `options.source`, with all checks of verify's structure level on its units. Throws Error
/// (kCorruptFile names the unit and the place at fault); then `options.output` is as it was, and after
/// trouble of the machine `<output>.partial` may hold the remains, which the next run removes.
DecompressReport decompress(const DecompressOptions& options);

}  // namespace weightpress
