#include "job/interpreted_kernel.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "format/df11_constants.h"

namespace weightpress::job {
namespace {

constexpr const char* kEntry = "decode";
// luts, encoded_exponent, sign_mantissa, output_positions, gaps, outputs; rows of luts, bytes, weights.
constexpr std::array<std::uint32_t, 9> kParameterBytes = {8, 8, 8, 8, 8, 8, 4, 4, 4};
// Of what follows the chunk that a window is in, the kernel takes 32 bits.
constexpr std::uint64_t kKernelLookaheadBytes = 4;
static_assert(kKernelLookaheadBytes <= df11::kDecodeLookaheadBytes);
// The official kernel's threads take less than a hundred backward branches between two barriers; a kernel
// whose threads go round once a weight of the chunk takes 2^15.
constexpr std::uint64_t kMaxBranches = std::uint64_t{1} << 16;
static_assert(kMaxBranches > df11::kChunkBits);
// It has fewer than thirty barriers.
constexpr std::uint64_t kMaxMeetings = std::uint64_t{1} << 15;

/// What lies in the emulated memory for one launch.
class Allocations {
 public:
  explicit Allocations(ptxvm::Memory& memory) : memory_(memory) {}
  ~Allocations() {
    for (const std::uint64_t address : addresses_) memory_.free(address);
  }
  Allocations(const Allocations&) = delete;
  Allocations& operator=(const Allocations&) = delete;

  template <class Bytes>
  std::uint64_t add(Bytes bytes, std::string name, std::uint32_t slack_bytes = 0) {
    ptxvm::AllocationOptions options;
    options.name = std::move(name);
    options.slack_bytes = slack_bytes;
    addresses_.push_back(memory_.adopt(bytes, std::move(options)));
    return addresses_.back();
  }

 private:
  ptxvm::Memory& memory_;
  std::vector<std::uint64_t> addresses_;
};

}  // namespace

Result<std::unique_ptr<InterpretedKernel>> InterpretedKernel::load(std::string ptx) {
  std::unique_ptr<InterpretedKernel> kernel(new InterpretedKernel);
  auto module = ptxvm::LoadedModule::load(std::move(ptx), kernel->memory_);
  if (!module) return Unexpected(ErrorCode::kUsage, module.error().message);
  kernel->module_ = std::move(*module);
  const ptxvm::KernelInfo* info = kernel->module_->find_kernel(kEntry);
  if (info == nullptr) return Unexpected(ErrorCode::kUsage, "it holds no entry " + std::string(kEntry));
  const bool fits = std::ranges::equal(info->parameters, kParameterBytes, {},
                                       [](const ptxvm::KernelParameter& one) { return one.size_bytes; });
  if (!fits) {
    return Unexpected(ErrorCode::kUsage, "its entry " + std::string(kEntry) +
                                             " does not take the official kernel's six pointers and three "
                                             "32-bit numbers");
  }
  return kernel;
}

const std::string& InterpretedKernel::name() const {
  static const std::string name = "the interpreter";
  return name;
}

KernelRun InterpretedKernel::run(const KernelSlab& slab) {
  const df11::DecodeArguments& given = slab.arguments;
  const std::uint64_t first_chunk = given.first_chunk, num_chunks = slab.num_chunks();
  const std::uint64_t first_weight = given.positions.front();
  const std::uint64_t stored_positions =
      std::min<std::uint64_t>(given.positions.size(), slab.sizes.num_positions - first_chunk);
  const std::uint64_t stream_bytes = std::min<std::uint64_t>(
      num_chunks * df11::kChunkBytes + kKernelLookaheadBytes, given.encoded_exponent.size());
  // The last window's gap is taken out of two bytes, though it lies in one.
  const std::uint64_t gaps_bytes = num_chunks * df11::kGapBytesPerChunk + (slab.is_last() ? 0 : 1);
  // Offsets in what a fault says count from there.
  const std::string piece =
      " from chunk " + std::to_string(first_chunk) + " to " + std::to_string(slab.end_chunk() - 1);

  Allocations memory(memory_);
  const std::uint64_t luts = memory.add(given.luts, "luts");
  const std::uint64_t stream =
      memory.add(given.encoded_exponent.first(stream_bytes), "encoded_exponent" + piece);
  const std::uint64_t sign_mantissa = memory.add(given.sign_mantissa, "sign_mantissa" + piece);
  const std::uint64_t positions = memory.add(
      std::span{reinterpret_cast<const std::uint8_t*>(given.positions.data()), 4 * stored_positions},
      "output_positions" + piece, stored_positions < given.positions.size() ? 4 : 0);
  const std::uint64_t gaps = memory.add(given.gaps.first(gaps_bytes), "gaps" + piece, slab.is_last() ? 1 : 0);
  const std::uint64_t outputs =
      memory.add(std::span{reinterpret_cast<std::uint8_t*>(given.weights.data()), given.weights.size_bytes()},
                 "outputs" + piece);

  // Where each buffer would begin if all of it were there, modulo 2^64.
  const std::array<std::uint64_t, kParameterBytes.size()> parameters = {
      luts,
      stream - first_chunk * df11::kChunkBytes,
      sign_mantissa - first_weight,
      positions - 4 * first_chunk,
      gaps - first_chunk * df11::kGapBytesPerChunk,
      outputs - 2 * first_weight,
      slab.sizes.num_tables + 1,
      slab.sizes.stream_bytes,
      slab.sizes.num_weights};
  ptxvm::LaunchConfig config;
  config.grid.x = static_cast<std::uint32_t>(slab.sizes.num_chunks);
  config.block.x = df11::kWindowsPerChunk;
  config.dynamic_shared_bytes = df11::official_shared_bytes(slab.densest_chunk);
  config.max_shared_bytes = df11::kOfficialSharedMemoryBytes;
  ptxvm::LaunchOptions options;
  options.first_block = first_chunk;
  options.num_blocks = num_chunks;
  options.num_threads = slab.num_threads;
  options.max_branches = kMaxBranches;
  options.max_meetings = kMaxMeetings;

  const auto start = std::chrono::steady_clock::now();
  Result<ptxvm::LaunchReport> report =
      ptxvm::launch(*module_, kEntry, config, std::span<const std::uint64_t>(parameters), memory_, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!report) throw Error(ErrorCode::kUsage, "the kernel cannot be launched: " + report.error().message);
  KernelRun run;
  run.fault = std::move(report->fault);
  // How much of a launch with a fault was done depends on threads, so it is not counted.
  if (run.fault) return run;
  run.counts.num_chunks = num_chunks;
  run.counts.num_weights = given.weights.size();
  run.counts.seconds = took.count();
  run.counts.lane_instructions = report->counters.lane_instructions;
  run.counts.reads_past_gaps = memory_.slack_reads(gaps);
  run.counts.reads_past_positions = memory_.slack_reads(positions);
  return run;
}

}  // namespace weightpress::job
