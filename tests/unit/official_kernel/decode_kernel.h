// The official decode kernel in the interpreter, launched as the official loader launches it (docs/format.md,
// "How the official kernel decodes").
//
// Nothing of decode.ptx is stored here: WEIGHTPRESS_DECODE_PTX says where the test finds it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <glob.h>

#include <weightpress/df11.h>

#include "ptxvm/launch.h"
#include "ptxvm/memory.h"

namespace weightpress::testing {

/// The environment variable, else what the build says: a path, in which the shell's patterns count
/// ("python3.*"). Nothing: nothing is there.
inline std::optional<std::string> find_decode_ptx() {
  const char* pattern = std::getenv("WEIGHTPRESS_DECODE_PTX");
#ifdef WP_DECODE_PTX
  if (pattern == nullptr) pattern = WP_DECODE_PTX;
#endif
  if (pattern == nullptr) return std::nullopt;
  std::optional<std::string> found;
  ::glob_t matches = {};
  if (::glob(pattern, 0, nullptr, &matches) == 0) found = matches.gl_pathv[0];
  ::globfree(&matches);
  return found;
}

inline constexpr const char* kNoDecodePtx =
    "no decode.ptx: run scripts/setup-python, or set WEIGHTPRESS_DECODE_PTX to that of the PyPI package "
    "dfloat11 0.5.0";

inline constexpr std::uint32_t kBlockThreads = 512;
/// Counts of the block's threads and the chunk's two positions.
inline constexpr std::uint64_t kScanBytes = kBlockThreads * 4 + 4;
inline constexpr std::uint64_t kDefaultSharedBytes = 48 * 1024;
/// What the official loader can launch: 23,550.
inline constexpr std::uint64_t kMaxLaunchedChunkWeights = (kDefaultSharedBytes - kScanBytes) / 2;

/// Backward branches of the kernel's longest legal way between two barriers. A window of 64 bits holds 64
/// codes at most, and they are counted in two loops and decoded in two or three: fewer than 64 branches
/// each time. A chunk holds 32,768 weights at most, and 512 threads copy them in 64 rounds: 63 branches.
inline constexpr std::uint64_t kLegalBranches = 64;

/// Of a block: seven barriers, two of which stand in loops of nine rounds (512 threads are 2^9).
inline constexpr std::uint64_t kLegalMeetings = 5 + 2 * 9;

/// The largest difference of neighbouring output positions.
inline std::uint64_t densest_chunk(const Df11Unit& unit) {
  std::int64_t densest = 0, before = 0;
  for (std::size_t i = 0; i < unit.output_positions.size(); i += 4) {
    std::int64_t position = 0;
    for (std::size_t k = 4; k-- > 0;) position = position << 8 | unit.output_positions[i + k];
    if (i > 0) densest = std::max(densest, position - before);
    before = position;
  }
  return static_cast<std::uint64_t>(densest);
}

struct KernelRunOptions {
  ptxvm::LaunchOptions launch = {.max_branches = kLegalBranches, .max_meetings = kLegalMeetings + 1};
  std::uint64_t max_shared_bytes = kDefaultSharedBytes;
  std::optional<std::uint64_t> chunk_weights;  ///< that shared memory is for; nothing: densest_chunk()
  std::uint8_t pad = 0;                        ///< what stands behind gaps and output_positions
  bool has_pad = true;                         ///< false: reading there is a fault
  std::uint8_t fill = 0;                       ///< what the weights are before the launch
};

struct KernelRun {
  std::optional<std::string> refusal;  ///< why the driver would not launch; then nothing below counts
  std::optional<ptxvm::Fault> fault;
  std::vector<std::uint16_t> weights;
  std::uint64_t gaps_reads_past_end = 0, positions_reads_past_end = 0;
  ptxvm::Counters counters;

  bool is_clean() const { return !refusal && !fault; }
  std::string trouble() const {
    if (refusal) return "refused: " + *refusal;
    if (fault) return std::string(ptxvm::fault_name(fault->kind)) + ": " + fault->message;
    return "clean";
  }
};

/// Thread-safe.
class DecodeKernel {
 public:
  explicit DecodeKernel(std::string ptx)
      : module_(std::move(ptxvm::LoadedModule::load(std::move(ptx), memory_).value())) {}

  /// Of find_decode_ptx(), loaded once; nullptr: not found.
  static DecodeKernel* get() {
    static const std::unique_ptr<DecodeKernel> kernel = [] {
      const std::optional<std::string> text = read_text();
      return text ? std::make_unique<DecodeKernel>(*text) : nullptr;
    }();
    return kernel.get();
  }

  static std::optional<std::string> read_text() {
    const std::optional<std::string> path = find_decode_ptx();
    if (!path) return std::nullopt;
    std::ifstream file(*path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + *path);
    return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const ptxvm::LoadedModule& module() const { return *module_; }

  KernelRun run(const Df11Unit& unit, const KernelRunOptions& options = {}) {
    const auto input = [&](const std::vector<std::uint8_t>& bytes, const char* name, std::uint32_t slack) {
      return Buffer(memory_, memory_.adopt(std::span<const std::uint8_t>(bytes),
                                           {.name = name,
                                            .read_only = true,
                                            .slack_bytes = options.has_pad ? slack : 0,
                                            .slack_value = options.pad}));
    };
    const Buffer luts = input(unit.luts, "luts", 0);
    const Buffer stream = input(unit.encoded_exponent, "encoded_exponent", 0);
    const Buffer sign_mantissa = input(unit.sign_mantissa, "sign_mantissa", 0);
    const Buffer positions = input(unit.output_positions, "output_positions", 4);
    const Buffer gaps = input(unit.gaps, "gaps", 1);

    const std::size_t count = unit.sign_mantissa.size();
    const std::uint64_t output_bytes = std::uint64_t{2} * count;
    const Buffer outputs(memory_, memory_.allocate(output_bytes, {.name = "outputs"}));
    memory_.write(outputs.address(), std::vector<std::uint8_t>(output_bytes, options.fill));

    ptxvm::LaunchConfig config;
    config.grid.x = static_cast<std::uint32_t>((unit.encoded_exponent.size() + 4095) / 4096);
    config.block.x = kBlockThreads;
    config.dynamic_shared_bytes = kScanBytes + 2 * options.chunk_weights.value_or(densest_chunk(unit));
    config.max_shared_bytes = options.max_shared_bytes;
    const std::uint64_t parameters[] = {
        luts.address(), stream.address(),  sign_mantissa.address(), positions.address(),
        gaps.address(), outputs.address(), unit.luts.size() / 256,  unit.encoded_exponent.size(),
        count};
    auto report = ptxvm::launch(*module_, "decode", config, std::span<const std::uint64_t>(parameters),
                                memory_, options.launch);
    KernelRun run;
    if (!report) {
      if (report.error().code != ErrorCode::kUsage) throw Error(report.error());
      run.refusal = report.error().message;
      return run;
    }
    run.fault = std::move(report->fault);
    run.counters = report->counters;
    run.gaps_reads_past_end = memory_.slack_reads(gaps.address());
    run.positions_reads_past_end = memory_.slack_reads(positions.address());
    run.weights.resize(count);
    memory_.read(outputs.address(), {reinterpret_cast<std::uint8_t*>(run.weights.data()), output_bytes});
    return run;
  }

 private:
  class Buffer {
   public:
    Buffer(ptxvm::Memory& memory, std::uint64_t address) : memory_(memory), address_(address) {}
    ~Buffer() { memory_.free(address_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    std::uint64_t address() const { return address_; }

   private:
    ptxvm::Memory& memory_;
    std::uint64_t address_;
  };

  ptxvm::Memory memory_;
  std::unique_ptr<ptxvm::LoadedModule> module_;
};

}  // namespace weightpress::testing
