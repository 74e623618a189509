#include "ptxvm/launch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include "ptxvm/block_order.h"
#include "ptxvm/block_runner.h"
#include "ptxvm/loaded_module.h"

namespace weightpress::ptxvm {
namespace {

constexpr std::uint64_t kMaxBlockThreads = 1024;
constexpr std::uint64_t kMaxGridX = (std::uint64_t{1} << 31) - 1, kMaxGridYZ = 65535, kMaxBlockZ = 64;
// Blocks that a host thread begins before the first of them has ended, because that one waits for memory to
// change.
constexpr std::size_t kMaxResidentBlocks = 256;

Unexpected refusal(std::string message) {
  return Unexpected(ErrorCode::kUsage, std::move(message));
}

std::string text_of(const Dim3& dim) {
  return std::to_string(dim.x) + " x " + std::to_string(dim.y) + " x " + std::to_string(dim.z);
}

Result<void> check(const KernelInfo& kernel, const Function& function, const LaunchConfig& config,
                   std::uint64_t shared_bytes) {
  const Dim3 &grid = config.grid, &block = config.block;
  if (grid.count() == 0 || grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ)
    return refusal(kernel.name + ": a grid of " + text_of(grid) + " blocks cannot be launched");
  if (block.count() == 0 || block.x > kMaxBlockThreads || block.y > kMaxBlockThreads ||
      block.z > kMaxBlockZ || block.count() > kernel.max_threads) {
    return refusal(kernel.name + ": blocks of " + text_of(block) + " threads cannot be launched, at most " +
                   std::to_string(kernel.max_threads) + " threads are possible");
  }
  const std::uint32_t asked[] = {block.x, block.y, block.z};
  for (int i = 0; i < 3; ++i)
    if (function.required_threads[i] != 0 && function.required_threads[i] != asked[i])
      return refusal(kernel.name + ": blocks of " + text_of(block) +
                     " threads are not those that the kernel requires (.reqntid)");
  if (shared_bytes > config.max_shared_bytes) {
    return refusal(kernel.name + ": " + std::to_string(shared_bytes) +
                   " bytes of shared memory are more than the " + std::to_string(config.max_shared_bytes) +
                   " that a block may have");
  }
  return {};
}

class Launch {
 public:
  Launch(const LaunchState& state, std::uint64_t first, std::uint64_t count)
      : state_(state), first_(first), count_(count), order_(count, state.options.seed) {}

  LaunchReport run() {
    const auto num_workers = std::clamp<std::uint64_t>(
        static_cast<std::uint64_t>(std::max(state_.options.num_threads, 1)), 1, count_);
    std::vector<std::thread> threads;
    try {
      for (std::uint64_t i = 1; i < num_workers; ++i) threads.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // Fewer threads do as well.
    }
    work();
    for (std::thread& thread : threads) thread.join();
    if (trouble_) std::rethrow_exception(trouble_);
    return std::move(report_);
  }

 private:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  struct Resident {
    std::unique_ptr<BlockRunner> runner;
    std::uint64_t place = 0;
  };

  void work() {
    try {
      work_or_throw();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!trouble_) trouble_ = std::current_exception();
      first_fault_ = 0;
    }
  }

  void work_or_throw() {
    const Program& program = *state_.program;
    std::vector<std::uint64_t> edges(program.blocks.size());
    std::uint64_t num_blocks = 0;
    std::vector<Resident> residents, idle;
    std::size_t current = 0;
    // Blocks that wait for each other share nothing of a log but its counters.
    std::vector<std::unique_ptr<AccessLog>> logs;
    bool wants_another = true;
    // Rounds in which nothing got on here, since the launch as a whole last did.
    std::uint64_t num_idle_rounds = 0, progress_seen = 0;
    for (;;) {
      if (wants_another && residents.size() < kMaxResidentBlocks) {
        const std::uint64_t place = next_.fetch_add(1);
        wants_another = false;
        if (place < count_ && place < first_fault_) {
          Resident begun;
          if (idle.empty()) {
            AccessLog* log = nullptr;
            if (state_.options.count_accesses) {
              logs.push_back(
                  std::make_unique<AccessLog>(static_cast<std::uint32_t>(state_.config.block.count())));
              log = logs.back().get();
            }
            begun.runner = std::make_unique<BlockRunner>(state_, edges, log);
          } else {
            begun = std::move(idle.back());
            idle.pop_back();
          }
          begun.place = place;
          begun.runner->begin(first_ + order_.at(place));
          ++num_blocks;
          residents.push_back(std::move(begun));
          current = residents.size() - 1;
        }
      }
      if (residents.empty()) break;
      Resident& resident = residents[current];
      if (resident.place > first_fault_) {  // it does not matter any more
        residents.erase(residents.begin() + static_cast<std::ptrdiff_t>(current));
        current = 0;
        continue;
      }
      const std::uint64_t progress = progress_;
      if (std::exchange(progress_seen, progress) != progress) num_idle_rounds = 0;
      switch (resident.runner->run_round(progress)) {
        case BlockRunner::Progress::kSome:
          ++progress_;
          break;
        case BlockRunner::Progress::kNone:
          wants_another = true;
          ++num_idle_rounds;
          // When all wait in vain, the first of them may use up its patience alone.
          current =
              num_idle_rounds > 2 * residents.size() ? first_of(residents) : (current + 1) % residents.size();
          break;
        case BlockRunner::Progress::kFault:
          note_fault(resident.place, resident.runner->fault());
          [[fallthrough]];
        case BlockRunner::Progress::kDone:
          ++progress_;
          idle.push_back(std::move(resident));
          residents.erase(residents.begin() + static_cast<std::ptrdiff_t>(current));
          current = residents.empty() ? 0 : residents.size() - 1;
          wants_another = residents.empty();
      }
    }
    Counters counters;
    for (const auto& log : logs) counters += log->counters();
    counters.lane_instructions = program.lane_instructions(edges, num_blocks * state_.config.block.count());
    const std::lock_guard lock(mutex_);
    report_.counters += counters;
  }

  static std::size_t first_of(const std::vector<Resident>& residents) {
    return static_cast<std::size_t>(std::ranges::min_element(residents, {}, &Resident::place) -
                                    residents.begin());
  }

  void note_fault(std::uint64_t place, const Fault& fault) {
    const std::lock_guard lock(mutex_);
    if (place >= first_fault_) return;
    first_fault_ = place;
    report_.fault = fault;
  }

  const LaunchState& state_;
  const std::uint64_t first_, count_;
  const BlockOrder order_;
  std::atomic<std::uint64_t> next_{0}, first_fault_{kNone};
  std::atomic<std::uint64_t> progress_{0};  // of any block
  std::mutex mutex_;
  LaunchReport report_;
  std::exception_ptr trouble_;
};

}  // namespace

std::string_view fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kOutOfBounds:
      return "out-of-bounds";
    case FaultKind::kMisaligned:
      return "misaligned";
    case FaultKind::kUninitialised:
      return "uninitialised";
    case FaultKind::kRace:
      return "race";
    case FaultKind::kBarrier:
      return "barrier";
    case FaultKind::kWarp:
      return "warp";
    case FaultKind::kEndless:
      return "endless";
    case FaultKind::kTrap:
      break;
  }
  return "trap";
}

Counters& Counters::operator+=(const Counters& other) {
  lane_instructions += other.lane_instructions;
  global_load_bytes += other.global_load_bytes;
  global_store_bytes += other.global_store_bytes;
  global_load_sectors += other.global_load_sectors;
  global_store_sectors += other.global_store_sectors;
  shared_instructions += other.shared_instructions;
  shared_bank_words += other.shared_bank_words;
  atomic_instructions += other.atomic_instructions;
  atomic_lanes += other.atomic_lanes;
  return *this;
}

Result<LaunchReport> launch(const LoadedModule& module, std::string_view kernel_name,
                            const LaunchConfig& config, std::span<const std::uint8_t> parameters,
                            Memory& memory, const LaunchOptions& options) {
  const LoadedKernel* const kernel = module.state().find(kernel_name);
  if (kernel == nullptr) return refusal("there is no kernel " + std::string(kernel_name));
  LaunchState state;
  state.program = &kernel->program;
  state.config = config;
  state.options = options;
  const KernelLayout& layout = kernel->program.layout;
  state.shared_bytes = layout.static_shared_bytes;
  if (config.dynamic_shared_bytes != 0) {
    const std::uint64_t begin =
        (state.shared_bytes + layout.shared_align - 1) / layout.shared_align * layout.shared_align;
    if (config.dynamic_shared_bytes > std::numeric_limits<std::uint32_t>::max())
      return refusal(kernel->info.name + ": that much dynamic shared memory cannot be launched");
    state.shared_bytes = begin + config.dynamic_shared_bytes;
  }
  if (const auto checked = check(kernel->info, *kernel->function, config, state.shared_bytes); !checked)
    return Unexpected(checked.error());
  if (parameters.size() != layout.parameter_bytes) {
    return refusal(kernel->info.name + ": " + std::to_string(parameters.size()) +
                   " bytes of parameters were given, it takes " + std::to_string(layout.parameter_bytes));
  }
  const std::uint64_t num_blocks = config.grid.count();
  if (options.first_block >= num_blocks || options.num_blocks > num_blocks - options.first_block ||
      options.max_branches == 0)
    return refusal(kernel->info.name + ": the blocks that are to run are not in the grid");
  state.parameters.assign(parameters.begin(), parameters.end());
  state.details = memory.table();
  for (const Memory::Allocation* allocation : state.details) {
    const std::uint64_t bytes = allocation->is_live ? allocation->size_bytes : 0;
    state.bounds.push_back({allocation->bytes, bytes, allocation->is_writable ? bytes : 0});
  }
  const bool is_checked = options.check_initialised || options.check_races || options.count_accesses;
  state.handlers = is_checked ? Handlers::kChecked : Handlers::kFast;
  const std::uint64_t count = options.num_blocks != 0 ? options.num_blocks : num_blocks - options.first_block;
  return Launch(state, options.first_block, count).run();
}

Result<LaunchReport> launch(const LoadedModule& module, std::string_view kernel_name,
                            const LaunchConfig& config, std::span<const std::uint64_t> parameter_values,
                            Memory& memory, const LaunchOptions& options) {
  const KernelInfo* const kernel = module.find_kernel(kernel_name);
  if (kernel == nullptr) return refusal("there is no kernel " + std::string(kernel_name));
  if (parameter_values.size() != kernel->parameters.size()) {
    return refusal(kernel->name + ": " + std::to_string(parameter_values.size()) +
                   " parameters were given, it takes " + std::to_string(kernel->parameters.size()));
  }
  std::vector<std::uint8_t> bytes(kernel->parameter_bytes);
  for (std::size_t i = 0; i < parameter_values.size(); ++i) {
    const KernelParameter& parameter = kernel->parameters[i];
    if (parameter.size_bytes > sizeof(std::uint64_t))
      return refusal(kernel->name + ": parameter " + std::to_string(i) + " is no single value");
    std::memcpy(bytes.data() + parameter.offset_bytes, &parameter_values[i], parameter.size_bytes);
  }
  return launch(module, kernel_name, config, std::span<const std::uint8_t>(bytes), memory, options);
}

}  // namespace weightpress::ptxvm
