// The emulated machine: devices, contexts and what belongs to them, the scheduler, the planned failures.
//
// Handles are numbers that nothing else uses and that are never used again, so that a wrong or old one is an
// error and not a crash. One lock guards it all; calls.h takes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <cuda.h>

#include "device.h"
#include "operation.h"
#include "ptxvm/launch.h"
#include "scheduler.h"
#include "settings.h"
#include "trace.h"

namespace weightpress::cuda_driver {

/// A handle's value from its number, and back; 0 if it is none.
constexpr std::uint64_t kHandleMark = std::uint64_t{0xC0DA} << 48;
template <class Handle>
Handle handle_of(std::uint64_t number) {
  return reinterpret_cast<Handle>(kHandleMark | number << 4);
}
template <class Handle>
std::uint64_t number_of(Handle handle) {
  const auto value = reinterpret_cast<std::uint64_t>(handle);
  return (value & kHandleMark) == kHandleMark && (value & 15) == 0 ? (value & ~kHandleMark) >> 4 : 0;
}

struct Stream {
  std::uint64_t number = 0;  ///< 0: the legacy default stream
  std::uint64_t context = 0;
  unsigned flags = CU_STREAM_DEFAULT;
  int priority = 0;
  OperationPtr last;

  bool is_legacy() const { return number == 0; }
  bool is_blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct Event {
  std::uint64_t context = 0;
  unsigned flags = 0;
  OperationPtr record;
};

struct ModuleEntry {
  std::uint64_t context = 0;
  std::unique_ptr<ptxvm::LoadedModule> module;
  int ptx_target = 0;  ///< 75 for sm_75
  std::map<std::string, std::uint64_t> functions;
};

struct FunctionEntry {
  std::uint64_t context = 0, module = 0;
  std::string name;
  int target = 0;
  const ptxvm::LoadedModule* code = nullptr;
  const ptxvm::KernelInfo* info = nullptr;
  int max_dynamic_shared = -1;  ///< as set; -1: what is left of 48 KiB
  int carveout = -1;
};

/// Bytes of dynamic shared memory that a launch may ask for.
int max_dynamic_shared(const FunctionEntry& function);

struct Context {
  std::uint64_t number = 0;
  Device* device = nullptr;
  CUresult dead = CUDA_SUCCESS;  ///< an error that every call gives from now on
  Stream legacy;
  std::map<std::uint64_t, std::shared_ptr<Stream>> per_thread;  ///< by the thread's number
  std::vector<std::shared_ptr<Stream>> orphans;                 ///< destroyed, perhaps not at their end
};

/// Host memory that devices can reach.
struct Pinned {
  std::uint8_t* begin = nullptr;
  std::uint64_t bytes = 0;
  unsigned flags = 0;
  bool is_registered = false;  ///< it is the program's
  std::uint64_t context = 0;
  std::vector<std::uint64_t> addresses;  ///< of `begin`, by device
  std::vector<std::uint64_t> bases;      ///< of its allocation there
  HostBytes own;
};

class Machine {
 public:
  Machine(std::mutex& driver_mutex, Settings settings);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const Settings settings;
  Trace trace;
  Scheduler scheduler;
  std::vector<std::unique_ptr<Device>> devices;
  std::map<std::uint64_t, std::shared_ptr<Context>> contexts;
  std::map<std::uint64_t, std::shared_ptr<Stream>> streams;
  std::map<std::uint64_t, Event> events;
  std::map<std::uint64_t, ModuleEntry> modules;
  std::map<std::uint64_t, FunctionEntry> functions;
  std::map<std::uint8_t*, Pinned> pinned;

  std::uint64_t new_number() { return ++last_number_; }
  Device* find_device(CUdevice device);
  Device* device_of(std::uint64_t address);  ///< nullptr: it is no address of a device
  /// The bytes at an address of any device, all inside one allocation; or nullptr.
  std::uint8_t* device_bytes(std::uint64_t address, std::uint64_t bytes);
  void mark_initialised(std::uint64_t address, std::uint64_t bytes);
  /// The pinned memory that holds a byte.
  Pinned* find_pinned(const void* pointer);

  CUresult retain(Device& device, std::uint64_t* context);
  /// Ends a context and all that it has.
  void destroy(std::uint64_t context);
  void unpin(Pinned& range);
  void unload(std::uint64_t module);
  /// The process ends, or wants another machine: makes the trace complete.
  void finish();

  // Planned failures.
  void count_call();
  bool allocation_fails();  ///< counts it
  bool launch_fails();      ///< counts it
  /// A kernel has run: counts it, and flips a bit if that is planned.
  void note_kernel(Device& device);
  void fail(std::uint64_t context, CUresult result, const std::string& message);

  // Time.
  OperationPtr last_wait;  ///< HostClock::kProcess

 private:
  void lose(Device& device);

  std::uint64_t last_number_ = 0;
  std::uint64_t num_calls_ = 0, num_allocations_ = 0, num_launches_ = 0, num_kernels_ = 0;
};

}  // namespace weightpress::cuda_driver
