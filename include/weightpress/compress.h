// Compresses a whole model: a safetensors checkpoint in, DF11 or Tile-ANS files out. Or tells beforehand how
// large they would be.
//
// Options have the names of the program's (docs/cli.md).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <weightpress/df11.h>
#include <weightpress/error.h>

namespace weightpress {

enum class Format : std::uint8_t {
  kDf11,    ///< units of BF16 tensors, as a definition names them
  kTileAns  ///< each tensor by itself, of any of 16 dtypes: the container of the package entropack
};

/// What decides the bytes of Tile-ANS (docs/format.md). Tensors that are not chosen, have another dtype, are
/// scalars or empty, or would not shrink, stay as they are.
struct TileAnsOptions {
  std::uint64_t tile_elements = 0;     ///< elements of a tile, up to 2^31 - 1; 0: 4096, above 32 MiB 8192
  std::uint32_t probability_bits = 0;  ///< 9 to 12; 0: what takes least, for each tensor
  double raw_lane_threshold = 7.9;     ///< bits a byte, 0 to 8, from which on a byte lane is stored raw
  /// Regular expressions as Python has them, which must match a tensor's whole name. A tensor is chosen if
  /// one of include (if there are any) and none of exclude matches.
  std::vector<std::string> include, exclude;
  /// Names as in headers, e.g. "BF16", or PyTorch's, e.g. "bfloat16"; empty: all that Tile-ANS has.
  std::vector<std::string> dtypes;

  bool operator==(const TileAnsOptions&) const = default;
};

enum class CompressPhase : std::uint8_t {
  kPlanning,     ///< single-file layouts: all units are counted before the first byte is written
  kCompressing,  ///< units
  kCopying,      ///< tensors that are kept
  kFinishing     ///< all is written; told once, before the output gets its name
};

/// Where a run is. Called from the thread that called compress(): at the beginning of each phase, after each
/// piece of a unit, and after each tensor that was copied.
struct CompressProgress {
  CompressPhase phase = CompressPhase::kCompressing;
  std::string unit;  ///< the one in work; empty while tensors are copied
  std::uint64_t units_done = 0;
  std::uint64_t units_resumed = 0;  ///< of these, what an earlier run has done
  std::uint64_t num_units = 0;
  std::uint64_t bytes_done = 0;     ///< of all phases, in bytes of the output's uncompressed tensors
  std::uint64_t bytes_resumed = 0;  ///< of these, what an earlier run has done
  std::uint64_t total_bytes = 0;
};

struct CompressReport;

enum class Verifier : std::uint8_t {
  kAuto,     ///< after our own decoder the official decode.ptx, where it is found (VerifyOptions::kernel)
  kOwn,      ///< our own decoder alone
  kOfficial  ///< kUsage or kNotFound without the known decode.ptx, kDeviceFailed without a GPU
};

struct CompressOptions {
  std::filesystem::path source;  ///< a .safetensors file, or a folder of them with or without an index
  /// A folder; in a single-file layout also a file, if it ends in .safetensors. Appears complete, by one
  /// rename out of `<output>.partial`.
  std::filesystem::path output;
  /// With kTileAns a unit is a tensor, files have the names of the source's, and the options of DF11 (arch to
  /// strict_identity, keep_unencodable to hashes) are kUsage.
  Format format = Format::kDf11;
  TileAnsOptions tile_ans = {};  ///< kUsage with kDf11
  /// The model's definition: a name, a JSON file (architectures/README.md), or "auto" to detect it.
  std::string arch = "auto";
  /// transformers, diffusers, diffusers-single or comfyui; empty: the definition's.
  std::string layout = {};
  LutFill luts = LutFill::kCompat;
  bool strict_identity = false;   ///< refuse units whose bytes would differ from the official ones
  bool keep_unencodable = false;  ///< store units that DF11 cannot hold as they are
  bool cast_to_bf16 = false;      ///< round F32 and F16 tensors to BF16: a loss
  bool with_config = false;  ///< write config.json in the layouts that have none, and whole in diffusers'
  /// Store SHA-256 of every tensor and header in __metadata__ (docs/format.md, "Stored hashes"). Not with
  /// strict_identity.
  bool hashes = false;
  bool force = false;  ///< replace an output that is there
  /// Read everything back: each unit is decoded from what was written and compared with the source before it
  /// counts.
  bool verify = true;
  int num_threads = 0;  ///< 0: as many as the machine has; the bytes do not depend on it
  /// "cpu"; "cuda" or "cuda:N": a GPU, "cuda:N,M": several, which share the units, and kDeviceFailed if one
  /// of them cannot be used or fails; "auto": the first GPU that can be used, and the CPU if there is none or
  /// it fails. The bytes do not depend on it.
  std::string device = "cpu";
  /// Of each GPU's memory, at most; 0: nine tenths of what is free. Longer units go through it in slabs.
  std::uint64_t vram_bytes = 0;
  /// What reads units back in a GPU's memory.
  Verifier verifier = Verifier::kAuto;
  /// Bounds the resident memory of the whole process, whatever it holds before (the program also keeps the
  /// allocator from holding on to blocks: src/cli/main.cpp); 0: 60% of what is free. The bytes do not depend
  /// on it. kOutOfMemory if it is too little; the message names the smallest value.
  std::uint64_t ram_bytes = 0;
  /// Go on with what a run of the same job has left in `<output>.partial`. False: remove it.
  bool resume = true;
  std::function<void(const CompressProgress&)> on_progress = {};
  /// Called once before anything is read but headers, with what is settled by then: definition, why,
  /// also_fits, layout, notes, dropped.
  std::function<void(const CompressReport&)> on_planned = {};
  /// Called with a sentence when a GPU fails and the CPU goes on.
  std::function<void(const std::string&)> on_warning = {};
};

/// A unit and something that has to be said about it.
struct UnitRemark {
  std::string unit;
  std::string remark;  ///< a sentence
};

/// A source tensor that is not in the output, and why.
struct DroppedTensorRemark {
  std::string tensor;
  std::string reason;
};

/// What casts to BF16 did.
struct CastReport {
  std::uint64_t num_tensors = 0;
  std::uint64_t changed = 0;          ///< values that BF16 does not hold; those below are among them
  std::uint64_t overflowed = 0;       ///< finite values that became Inf
  std::uint64_t flushed_to_zero = 0;  ///< values other than zero that became zero
};

/// Another definition that fits the model, when one was detected.
struct AlternativeDefinition {
  std::string name;
  bool same_bytes = false;  ///< of every .safetensors file
  std::string difference;   ///< a clause
};

/// What a run spends its time on. kCopy: reading and writing of kept tensors; kSync: waiting for the disk.
enum class Stage : std::uint8_t { kRead, kHistogram, kEncode, kVerify, kWrite, kCopy, kSync };
inline constexpr std::size_t kNumStages = 7;

/// Its name in reports, e.g. "histogram".
std::string_view stage_name(Stage stage);

struct StageTime {
  double seconds = 0;       ///< of the run; the work inside is parallel
  std::uint64_t bytes = 0;  ///< that went through
};

/// How the memory was used that the run was allowed to take.
struct MemoryReport {
  std::uint64_t ram_bytes = 0;     ///< the promise
  std::string why;                 ///< where it comes from, a clause
  std::uint64_t needed_bytes = 0;  ///< at most, but for weights that are held
  std::uint64_t slab_weights = 0;  ///< that are in work at once
  std::uint64_t hold_bytes = 0;    ///< at most, of weights that are held between planning and encoding
  std::uint64_t units_held = 0;    ///< that were read once
  std::uint64_t units_streamed = 0;
};

struct UnitReport {
  std::string unit;
  std::uint64_t num_weights = 0;
  std::uint64_t output_bytes = 0;  ///< of its six buffers; Tile-ANS: and its header
  std::uint64_t source_bytes = 0;
};

struct CompressReport {
  std::string definition;  ///< its name; empty with Tile-ANS, as the layout
  std::string why;         ///< why it was detected; empty: it was given
  std::vector<AlternativeDefinition> also_fits;
  std::string layout;
  std::uint64_t num_units = 0;
  std::uint64_t num_kept_tensors = 0;  ///< siblings, leftover and units that are kept: stored as they were
  std::uint64_t unit_source_bytes = 0;
  std::uint64_t unit_output_bytes = 0;  ///< the units' buffers
  std::uint64_t source_bytes = 0;       ///< all tensors
  std::uint64_t output_bytes = 0;       ///< all files
  double seconds = 0;
  int num_threads = 0;
  std::string device;      ///< "cpu", or e.g. "cuda:0 (NVIDIA H200, cubin for sm_90)"; what was used last
  std::string why_device;  ///< a clause
  /// What read everything back: "host decoder", "wp_decode" (a kernel, in the GPU's memory), "decode" (there,
  /// after it, the official one); empty: nothing.
  std::string verifier;
  std::uint64_t peak_memory_bytes = 0;  ///< of the process so far; 0 where the system does not tell
  std::vector<UnitRemark> remarks;      ///< units whose bytes are not the official ones
  std::vector<UnitRemark> kept_units;   ///< with keep_unencodable
  std::vector<DroppedTensorRemark> dropped;
  CastReport cast;
  std::vector<std::string> notes;    ///< sentences: what a user should know of the model and the definition
  bool lacks_source_config = false;  ///< config.json was written and holds nothing but dfloat11_config
  /// With force: why the output that was replaced is still there; empty: it is not.
  std::string old_output_left;
  bool removed_remains = false;                ///< of an earlier, broken run
  std::uint64_t resumed_units = 0;             ///< that an earlier run has done
  bool only_renamed = false;                   ///< an earlier run had done everything else
  std::vector<UnitReport> units;               ///< in the order of the output
  std::array<StageTime, kNumStages> stages{};  ///< by Stage
  MemoryReport memory;
};

/// Compresses `options.source`. Throws Error; then `options.output` is as it was, and `<output>.partial` may
/// hold what is done, with which the next run of the same job goes on. kOutputExists if it is of another job.
CompressReport compress(const CompressOptions& options);

/// What compress() with the same options would write, to the byte. Reads all weights of units once and writes
/// nothing; options.output, force and resume mean nothing.
struct SizeEstimate {
  std::uint64_t output_bytes = 0;  ///< of all files
  std::uint64_t num_files = 0;
  CompressReport report;  ///< but for what only a written output has
};

/// Throws what compress() throws before it writes.
SizeEstimate estimate(const CompressOptions& options);

}  // namespace weightpress
