// What every call of the API has in common: the lock, the checks, the calling thread's state.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include <cuda.h>

#include "machine.h"

// cuda.h declares the calls; only those that are defined with this are exported.
#define WP_CUDA_API extern "C" __attribute__((visibility("default")))

namespace weightpress::cuda_driver {

/// Of a thread of the program.
struct ThreadState {
  std::uint64_t generation = 0;
  std::uint64_t number = 0;
  std::vector<std::uint64_t> contexts;  ///< the current one is the last; 0: none
  OperationPtr last_wait;
};

/// Lives until the process ends.
struct Driver {
  std::mutex mutex;
  std::unique_ptr<Machine> machine;  ///< since cuInit
  std::uint64_t generation = 1;      ///< of machines
  std::uint64_t num_threads = 0;
  std::uint64_t num_calls = 0;
  bool has_host_function_thread = false;

  static Driver& get();
};

/// With the driver's lock held.
ThreadState& this_thread(Driver& driver);
/// nullptr: the thread has none; or it is gone, which `result` says.
std::shared_ptr<Context> current_context(Driver& driver, CUresult& result);
/// Whether the calling thread is in a host function; while it is, calls are refused.
bool is_in_host_function();
void set_in_host_function(bool value);

/// Where the calling thread is in virtual time.
OperationPtr last_wait(Machine& machine);
/// The calling thread has waited for an operation, which is over or will be.
void wait_in_time(Machine& machine, const OperationPtr& operation);

template <class Body>
CUresult guarded(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// body(machine). For calls that need cuInit only.
template <class Body>
CUresult with_machine(const Body& body) {
  if (is_in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  return guarded([&] {
    Driver& driver = Driver::get();
    const std::lock_guard lock(driver.mutex);
    if (driver.machine == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    ++driver.num_calls;
    driver.machine->count_call();
    return body(*driver.machine);
  });
}

/// body(machine, context). For calls that need a current context that lives. What the context died of
/// meanwhile comes before the body's success.
template <class Body>
CUresult with_context(const Body& body) {
  return with_machine([&](Machine& machine) {
    CUresult result = CUDA_SUCCESS;
    const std::shared_ptr<Context> context = current_context(Driver::get(), result);
    if (context == nullptr) return result;
    if (context->dead != CUDA_SUCCESS) return context->dead;
    result = body(machine, *context);
    return result == CUDA_SUCCESS ? context->dead : result;
  });
}

/// A stream by its handle, 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD included; nullptr: there is none.
std::shared_ptr<Stream> find_stream(Machine& machine, Context& context, CUstream handle);
/// The same, with what a call gives if there is none or its context is dead. Kernels and events want a stream
/// of their own context; the other operations take any.
CUresult find_stream(Machine& machine, Context& context, CUstream handle, bool must_be_ours,
                     std::shared_ptr<Stream>& stream);
/// Puts an operation into a stream, behind what the stream's rules say; its context is the stream's.
OperationPtr put(Machine& machine, Stream& stream, Operation operation, OperationPtr event = nullptr);

}  // namespace weightpress::cuda_driver
