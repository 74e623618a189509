// Events.
#include "calls.h"

// cuda.h gives the plain name to the second version.
#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end);

using namespace weightpress::cuda_driver;

namespace {

// body(machine, context, event)
template <class Body>
CUresult with_event(CUevent handle, const Body& body) {
  return with_context([&](Machine& machine, Context& context) {
    const auto found = machine.events.find(number_of(handle));
    return found == machine.events.end() ? CUDA_ERROR_INVALID_HANDLE : body(machine, context, found->second);
  });
}

CUresult record(CUevent handle, CUstream stream_handle) {
  return with_event(handle, [&](Machine& machine, Context& context, Event& event) {
    std::shared_ptr<Stream> stream;
    const CUresult result = find_stream(machine, context, stream_handle, false, stream);
    if (result != CUDA_SUCCESS) return result;
    if (stream->context != event.context) return CUDA_ERROR_INVALID_HANDLE;
    Operation operation;
    operation.kind = "event";
    event.record = put(machine, *stream, std::move(operation));
    return CUDA_SUCCESS;
  });
}

CUresult elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return with_event(start_handle, [&](Machine& machine, Context&, const Event& start) {
    const auto found = machine.events.find(number_of(end_handle));
    if (found == machine.events.end()) return CUDA_ERROR_INVALID_HANDLE;
    const Event& end = found->second;
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (start.context != end.context || ((start.flags | end.flags) & CU_EVENT_DISABLE_TIMING) != 0 ||
        start.record == nullptr || end.record == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    const OperationPtr first = start.record, last = end.record;
    if (!first->is_over() || !last->is_over()) return CUDA_ERROR_NOT_READY;
    machine.scheduler.force_times(first->sequence > last->sequence ? first : last);
    *milliseconds =
        static_cast<float>((static_cast<double>(last->end_ns) - static_cast<double>(first->end_ns)) / 1e6);
    return CUDA_SUCCESS;
  });
}

}  // namespace

WP_CUDA_API CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
  return with_context([&](Machine& machine, Context& context) {
    constexpr unsigned kFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0)
      return (flags & CU_EVENT_DISABLE_TIMING) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    if ((flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t number = machine.new_number();
    machine.events[number] = Event{context.number, flags, nullptr};
    *handle = handle_of<CUevent>(number);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuEventDestroy_v2(CUevent handle) {
  return with_context([&](Machine& machine, Context&) {
    return machine.events.erase(number_of(handle)) == 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuEventRecord(CUevent event, CUstream stream) {
  return record(event, stream);
}

WP_CUDA_API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  if (flags > CU_EVENT_RECORD_EXTERNAL) {
    return with_context([](Machine&, Context&) { return CUDA_ERROR_INVALID_VALUE; });
  }
  return record(event, stream);
}

WP_CUDA_API CUresult cuEventQuery(CUevent handle) {
  return with_event(handle, [](Machine& machine, Context&, const Event& event) {
    const OperationPtr last = event.record;
    if (!machine.scheduler.poll(last)) return CUDA_ERROR_NOT_READY;
    wait_in_time(machine, last);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuEventSynchronize(CUevent handle) {
  return with_event(handle, [](Machine& machine, Context&, const Event& event) {
    const OperationPtr last = event.record;
    const auto context = machine.contexts.at(event.context);
    machine.scheduler.force(last);
    wait_in_time(machine, last);
    return context->dead;
  });
}

WP_CUDA_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(milliseconds, start, end);
}

WP_CUDA_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(milliseconds, start, end);
}
