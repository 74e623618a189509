// Runs a kernel of a PTX module over a grid.
//
// One lane at a time runs until it has to meet others: a barrier, a warp operation. So results do not depend
// on how fast the host is, every order of lanes, warps and blocks can be tried (seed), and what depends on
// the order is found.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.h"
#include "ptxvm/memory.h"

namespace weightpress::ptxvm {

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;

  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

struct KernelParameter {
  std::uint32_t offset_bytes = 0;
  std::uint32_t size_bytes = 0;
};

struct KernelInfo {
  std::string name;
  std::vector<KernelParameter> parameters;
  std::uint32_t parameter_bytes = 0;
  std::uint64_t static_shared_bytes = 0;
  std::uint64_t local_bytes = 0;       ///< of a thread
  std::uint32_t max_threads = 1024;    ///< of a block
  std::uint32_t num_instructions = 0;  ///< PTX instructions, with those of called functions once a call
  std::uint32_t num_registers = 0;     ///< slots of a lane after packing; not what ptxas would need
};

/// A module that is ready to run. Its variables live in the memory that it was loaded into, until it is
/// destroyed.
class LoadedModule {
 public:
  /// Errors are kCorruptFile: "line N: ..." with the text of the instruction that is not known or makes no
  /// sense.
  static Result<std::unique_ptr<LoadedModule>> load(std::string ptx, Memory& memory);
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  std::vector<std::string> kernel_names() const;
  const KernelInfo* find_kernel(std::string_view name) const;
  struct GlobalVariable {
    std::uint64_t address = 0, size_bytes = 0;
  };
  std::optional<GlobalVariable> find_variable(std::string_view name) const;

  struct State;
  const State& state() const { return *state_; }

 private:
  explicit LoadedModule(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct LaunchConfig {
  Dim3 grid, block;
  std::uint64_t dynamic_shared_bytes = 0;
  std::uint64_t max_shared_bytes = 48 * 1024;  ///< static and dynamic together; CUDA's default
};

struct LaunchOptions {
  /// Of the grid's blocks, numbered x first, only these run; they see the whole grid. num_blocks 0: all from
  /// there on.
  std::uint64_t first_block = 0, num_blocks = 0;
  std::uint64_t seed = 0;          ///< of the order of blocks, warps and lanes; 0: ascending
  int num_threads = 1;             ///< of the host; blocks are shared out
  bool check_initialised = false;  ///< reads of shared or global memory that nothing has written
  bool check_races = false;        ///< shared memory: two accesses, one of them a write, that nothing orders
  bool check_barriers =
      false;  ///< threads of a block that meet at different barriers, or have ended before it
  bool count_accesses = false;  ///< Counters beyond lane_instructions; costs time
  /// Backward branches that a lane may take between two meetings; then it counts as endless.
  std::uint64_t max_branches = std::uint64_t{1} << 22;
  /// Meetings of lanes of a block, each warp operation and barrier one; then the block counts as endless.
  std::uint64_t max_meetings = std::uint64_t{1} << 22;
};

enum class FaultKind : std::uint8_t {
  kOutOfBounds,  ///< no allocation, past the end, read-only
  kMisaligned,
  kUninitialised,
  kRace,
  kBarrier,  ///< divergent, or never complete
  kWarp,     ///< a warp operation whose lanes do not come
  kEndless,
  kTrap,  ///< trap, a failed assertion
};

std::string_view fault_name(FaultKind kind);

/// Where and why a launch ended early.
struct Fault {
  FaultKind kind = FaultKind::kTrap;
  std::string message;     ///< a clause: what, where, the instruction's line and text
  std::uint32_t line = 0;  ///< in the PTX text
  Dim3 block{0, 0, 0}, thread{0, 0, 0};
  std::uint64_t block_number = 0;  ///< x first
};

/// Of one launch. docs/design.md, "PTX interpreter", has the exact meanings.
struct Counters {
  std::uint64_t lane_instructions = 0;  ///< PTX instructions of a lane, predicated-off ones included

  // With count_accesses only.
  std::uint64_t global_load_bytes = 0, global_store_bytes = 0;      ///< as accessed
  std::uint64_t global_load_sectors = 0, global_store_sectors = 0;  ///< 32 bytes each; atomics count as both
  std::uint64_t shared_instructions = 0;                            ///< warp instructions on shared memory
  std::uint64_t shared_bank_words = 0;    ///< sum over them of the most distinct words in one bank
  std::uint64_t atomic_instructions = 0;  ///< warp instructions
  std::uint64_t atomic_lanes = 0;         ///< sum over them of the most lanes on one address

  double bank_factor() const { return ratio(shared_bank_words, shared_instructions); }
  double lanes_per_address() const { return ratio(atomic_lanes, atomic_instructions); }
  Counters& operator+=(const Counters& other);

 private:
  static double ratio(std::uint64_t a, std::uint64_t b) {
    return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
  }
};

struct LaunchReport {
  std::optional<Fault>
      fault;  ///< of the first block, in the order that they run in; later blocks may have run too
  Counters counters;
};

/// parameters: KernelInfo::parameter_bytes, as the kernel's .param space has them. Errors (kUsage) are those
/// that a driver would return at once: no such kernel, sizes that no launch may have, too much shared memory.
/// Waits for the end.
Result<LaunchReport> launch(const LoadedModule& module, std::string_view kernel, const LaunchConfig& config,
                            std::span<const std::uint8_t> parameters, Memory& memory,
                            const LaunchOptions& options = {});

/// The same from a list of values, each of the size that the kernel declares.
Result<LaunchReport> launch(const LoadedModule& module, std::string_view kernel, const LaunchConfig& config,
                            std::span<const std::uint64_t> parameter_values, Memory& memory,
                            const LaunchOptions& options = {});

}  // namespace weightpress::ptxvm
