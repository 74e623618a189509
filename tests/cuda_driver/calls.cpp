#include "calls.h"

#include <algorithm>
#include <utility>

namespace weightpress::cuda_driver {
namespace {

thread_local ThreadState t_state;
thread_local bool t_is_in_host_function = false;

}  // namespace

Driver& Driver::get() {
  static Driver* const driver = new Driver;  // threads may use it until the very end
  return *driver;
}

ThreadState& this_thread(Driver& driver) {
  if (t_state.generation != driver.generation) {
    t_state = {};
    t_state.generation = driver.generation;
    t_state.number = ++driver.num_threads;
  }
  return t_state;
}

std::shared_ptr<Context> current_context(Driver& driver, CUresult& result) {
  const ThreadState& thread = this_thread(driver);
  result = CUDA_ERROR_INVALID_CONTEXT;
  if (thread.contexts.empty() || thread.contexts.back() == 0) return nullptr;
  const auto found = driver.machine->contexts.find(thread.contexts.back());
  result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (found == driver.machine->contexts.end()) return nullptr;
  result = CUDA_SUCCESS;
  return found->second;
}

bool is_in_host_function() {
  return t_is_in_host_function;
}
void set_in_host_function(bool value) {
  t_is_in_host_function = value;
}

OperationPtr last_wait(Machine& machine) {
  return machine.settings.host_clock == HostClock::kProcess ? machine.last_wait
                                                            : this_thread(Driver::get()).last_wait;
}

void wait_in_time(Machine& machine, const OperationPtr& operation) {
  OperationPtr& last = machine.settings.host_clock == HostClock::kProcess
                           ? machine.last_wait
                           : this_thread(Driver::get()).last_wait;
  last = machine.scheduler.host_wait(last, operation);
}

std::shared_ptr<Stream> find_stream(Machine& machine, Context& context, CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    return {machine.contexts.at(context.number), &context.legacy};
  }
  if (handle == CU_STREAM_PER_THREAD) {
    std::shared_ptr<Stream>& stream = context.per_thread[this_thread(Driver::get()).number];
    if (stream == nullptr) {
      stream = std::make_shared<Stream>();
      stream->number = machine.new_number();
      stream->context = context.number;
    }
    return stream;
  }
  const auto found = machine.streams.find(number_of(handle));
  return found == machine.streams.end() ? nullptr : found->second;
}

CUresult find_stream(Machine& machine, Context& context, CUstream handle, bool must_be_ours,
                     std::shared_ptr<Stream>& stream) {
  stream = find_stream(machine, context, handle);
  if (stream == nullptr || (must_be_ours && stream->context != context.number))
    return CUDA_ERROR_INVALID_HANDLE;
  return machine.contexts.at(stream->context)->dead;
}

OperationPtr put(Machine& machine, Stream& stream, Operation operation, OperationPtr event) {
  Context& context = *machine.contexts.at(stream.context);
  operation.context = context.number;
  operation.device = context.device->index();
  operation.stream = stream.number;
  std::vector<OperationPtr> waits_for{stream.last, std::move(event)};
  if (stream.is_legacy()) {
    for (const auto& [number, other] : machine.streams)
      if (other->context == context.number && other->is_blocking()) waits_for.push_back(other->last);
    for (const auto& [thread, other] : context.per_thread) waits_for.push_back(other->last);
    for (const auto& other : context.orphans)
      if (other->is_blocking()) waits_for.push_back(other->last);
  } else if (stream.is_blocking()) {
    waits_for.push_back(context.legacy.last);
  }
  stream.last = machine.scheduler.enqueue(std::move(operation), std::move(waits_for), last_wait(machine));
  if (context.dead != CUDA_SUCCESS) machine.scheduler.cancel(context.number);  // it died just now
  return stream.last;
}

}  // namespace weightpress::cuda_driver
