// Compresses a whole model: a safetensors checkpoint in, a folder of DF11 files out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <weightpress/df11.h>
#include <weightpress/error.h>

namespace weightpress {

/// One unit is done. Called from the thread that called compress().
struct CompressProgress {
  std::string unit;
  std::uint64_t units_done = 0;
  std::uint64_t num_units = 0;
  std::uint64_t source_bytes_done = 0;  ///< of the units
  std::uint64_t source_bytes = 0;       ///< of all units
};

struct CompressOptions {
  std::filesystem::path source;      ///< a .safetensors file, or a folder of them with or without an index
  std::filesystem::path output;      ///< a folder; appears complete, by one rename of `<output>.partial`
  std::filesystem::path definition;  ///< JSON file: which modules form units (architectures/README.md)
  LutFill luts = LutFill::kCompat;
  bool strict_identity = false;  ///< refuse units whose bytes would differ from the official ones
  bool force = false;            ///< replace an output that is there
  int num_threads = 0;           ///< 0: as many as the machine has; the bytes do not depend on it
  std::function<void(const CompressProgress&)> on_progress = {};
};

/// A unit whose bytes are not the official ones, and why.
struct UnitRemark {
  std::string unit;
  std::string remark;  ///< one sentence
};

struct CompressReport {
  std::string definition;  ///< its name
  std::uint64_t num_units = 0;
  std::uint64_t num_kept_tensors = 0;  ///< siblings and leftover: stored as they were
  std::uint64_t unit_source_bytes = 0;
  std::uint64_t unit_output_bytes = 0;  ///< the units' shards, siblings and headers included
  std::uint64_t source_bytes = 0;       ///< all tensors
  std::uint64_t output_bytes = 0;       ///< all files
  double seconds = 0;
  int num_threads = 0;
  std::vector<UnitRemark> remarks;
  bool has_source_config = false;  ///< false: config.json holds nothing but dfloat11_config
  std::string
      old_output_left;  ///< with force: why the output that was replaced is still there; empty: it is not
  bool removed_remains = false;  ///< of an earlier, broken run
};

/// Compresses `options.source`. Throws Error; then `options.output` is as it was, and `<output>.partial` may
/// hold the remains, which the next run removes.
CompressReport compress(const CompressOptions& options);

}  // namespace weightpress
