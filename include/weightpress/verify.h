// Verifies a DF11 or Tile-ANS output, of any maker: that it is sound in itself, and that it holds a source.
//
// With Tile-ANS a unit is a container, a chunk a tile, a weight an element.
//
// Options have the names of the program's (docs/cli.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <weightpress/error.h>

namespace weightpress {

enum class VerifyLevel : std::uint8_t {
  kDefault,    ///< kFull with a source or the engine kOfficial, else kStructure
  kStructure,  ///< all that needs no source
  kSample,     ///< some chunks of each unit against the source
  kFull        ///< everything against the source; without one against the stored hashes
};

/// What decodes the units.
enum class VerifyEngine : std::uint8_t {
  kAuto,  ///< our own decoder, on what VerifyOptions::device says
  kCpu,   ///< our own decoder on the CPU
  kCuda,  ///< our own decoder on a GPU
  /// Our own decoder on the CPU, and the official decode kernel, on a GPU or interpreted; without a source
  /// one against the other.
  kOfficial
};

/// Where a verification is. Called from the thread that called verify(), when a unit begins and after each
/// piece.
struct VerifyProgress {
  std::string unit;  ///< the one in work; empty: other tensors, or hashes
  std::uint64_t units_done = 0;
  std::uint64_t num_units = 0;
  std::uint64_t bytes_done = 0;  ///< of weights as BF16, of other tensors, of what is hashed
  std::uint64_t total_bytes = 0;
};

struct VerifyOptions {
  std::filesystem::path path;                   ///< a folder of .safetensors files, or one
  std::optional<std::filesystem::path> source;  ///< what it was made from: a folder or a .safetensors file
  VerifyLevel level = VerifyLevel::kDefault;    ///< kStructure: not with kOfficial
  VerifyEngine engine = VerifyEngine::kAuto;
  /// "cpu"; "cuda" or "cuda:N": a GPU, and kDeviceFailed if it cannot be used or fails; "auto": the first GPU
  /// that can be used, and the CPU if there is none or it fails. With kCuda, "auto" is the first GPU that can
  /// be used, as if it had been asked for; kCpu takes the CPU. kOfficial: "auto" runs the known decode.ptx on
  /// the first GPU, another kernel in the interpreter; "cpu" always interprets. The outcome does not depend
  /// on it.
  std::string device = "auto";
  /// kOfficial: the official decode.ptx, or another kernel in its place. Nothing: the file that
  /// WEIGHTPRESS_DECODE_PTX names, or that is found in a Python environment or beside ComfyUI.
  std::optional<std::filesystem::path> kernel;
  std::uint64_t samples = 1000;       ///< kSample: chunks of the whole output; each unit has one at least
  std::optional<std::uint64_t> seed;  ///< kSample: chooses the chunks; nothing: another one each time
  /// The definition: a name, a JSON file, or "auto": what lies beside the output tells, or it is detected.
  std::string arch = "auto";
  int num_threads = 0;  ///< 0: as many as the machine has; the outcome does not depend on it
  std::function<void(const VerifyProgress&)> on_progress = {};
  /// Called with a sentence when a GPU fails and the CPU goes on.
  std::function<void(const std::string&)> on_warning = {};
};

/// What does not hold. A unit has one (the first wrong place in the order of its stream), or one for each
/// reason why no loader can use it although its weights are right.
struct VerifyFailure {
  std::string unit;                                    ///< empty: not of a unit
  std::string tensor;                                  ///< empty: of a unit or of a file as a whole
  std::string kind;                                    ///< docs/cli.md lists them
  std::string message;                                 ///< a clause
  std::optional<std::uint64_t> chunk, window, weight;  ///< counted from the unit's first
};

/// What the engine kOfficial ran.
struct OfficialRun {
  std::filesystem::path kernel;
  std::string kernel_sha256;     ///< 64 digits
  bool is_known_kernel = false;  ///< decode.ptx of dfloat11 0.5.0
  bool is_interpreted = true;    ///< false: a GPU ran it (last)
  std::uint64_t num_chunks = 0;  ///< that the kernel decoded
  std::uint64_t num_weights = 0;
  // Of what was interpreted:
  std::uint64_t lane_instructions = 0;  ///< one PTX instruction of one thread each
  // Reads past the end of a buffer that the kernel is known for, and that are harmless.
  std::uint64_t reads_past_gaps = 0;
  std::uint64_t reads_past_output_positions = 0;
  double seconds = 0;  ///< that the kernel ran
};

struct VerifyReport {
  VerifyLevel level = VerifyLevel::kStructure;  ///< never kDefault
  VerifyEngine engine = VerifyEngine::kCpu;     ///< never kAuto; kCpu if a GPU failed
  std::string device;      ///< "cpu", or e.g. "cuda:0 (NVIDIA H200, cubin for sm_90)"; what was used last
  std::string why_device;  ///< a clause
  /// What decoded the units last: "host decoder", "wp_decode" (a kernel), "decode" (the official kernel,
  /// after the host decoder) or "decode, interpreted".
  std::string verifier;
  std::optional<OfficialRun> official;  ///< of kOfficial
  std::uint64_t seed = 0;               ///< of kSample
  std::uint64_t num_units = 0;
  std::uint64_t num_tensors = 0;  ///< outside units
  std::uint64_t num_weights = 0;  ///< of all units
  std::uint64_t num_chunks = 0;   ///< of all units
  std::uint64_t chunks_checked = 0;
  std::uint64_t num_files = 0;
  std::uint64_t num_hashed_files = 0;   ///< whose stored hashes were checked
  std::vector<VerifyFailure> failures;  ///< by unit, then by tensor
  std::vector<std::string> notes;       ///< sentences
  double seconds = 0;
  int num_threads = 0;
  std::uint64_t peak_memory_bytes = 0;  ///< of the process so far; 0 where the system does not tell

  bool ok() const { return failures.empty(); }
};

/// Verifies `options.path`. What does not hold is in the report. Throws Error where it cannot be told: kUsage
/// (no DF11, a level that lacks its source, a kernel that is none, an engine that is not for the device),
/// kDeviceFailed (a GPU that was asked for), kNotFound, kCorruptFile (no safetensors file), kBadDefinition
/// (no definition says which tensors of the source a unit holds), kIo, kOutOfMemory.
/// Memory: a few slabs. Thread-safe.
VerifyReport verify(const VerifyOptions& options);

}  // namespace weightpress
