// Streams.
#include <algorithm>

#include "calls.h"

using namespace weightpress::cuda_driver;

namespace {

constexpr int kGreatestPriority = -5;  // as cuCtxGetStreamPriorityRange says

// body(machine, stream)
template <class Body>
CUresult with_stream(CUstream handle, const Body& body) {
  return with_context([&](Machine& machine, Context& context) {
    std::shared_ptr<Stream> stream;
    const CUresult result = find_stream(machine, context, handle, false, stream);
    return result != CUDA_SUCCESS ? result : body(machine, *stream);
  });
}

}  // namespace

WP_CUDA_API CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned int flags, int priority) {
  return with_context([&](Machine& machine, Context& context) {
    if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    auto stream = std::make_shared<Stream>();
    stream->number = machine.new_number();
    stream->context = context.number;
    stream->flags = flags;
    stream->priority = std::clamp(priority, kGreatestPriority, 0);
    *handle = handle_of<CUstream>(stream->number);
    machine.streams.emplace(stream->number, std::move(stream));
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuStreamCreate(CUstream* handle, unsigned int flags) {
  return cuStreamCreateWithPriority(handle, flags, 0);
}

WP_CUDA_API CUresult cuStreamDestroy_v2(CUstream handle) {
  return with_context([&](Machine& machine, Context&) {
    const auto found = machine.streams.find(number_of(handle));
    if (found == machine.streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    const std::shared_ptr<Stream> stream = found->second;
    machine.streams.erase(found);
    // What is in it goes on.
    auto& orphans = machine.contexts.at(stream->context)->orphans;
    std::erase_if(orphans, [](const auto& other) { return other->last->is_timed; });
    if (stream->last != nullptr) orphans.push_back(stream);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuStreamSynchronize(CUstream handle) {
  return with_stream(handle, [](Machine& machine, Stream& stream) {
    const OperationPtr last = stream.last;
    machine.scheduler.force(last);
    wait_in_time(machine, last);
    const auto context = machine.contexts.find(stream.context);
    return context == machine.contexts.end() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->second->dead;
  });
}

WP_CUDA_API CUresult cuStreamQuery(CUstream handle) {
  return with_stream(handle, [](Machine& machine, Stream& stream) {
    const OperationPtr last = stream.last;
    if (!machine.scheduler.poll(last)) return CUDA_ERROR_NOT_READY;
    wait_in_time(machine, last);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
  return with_stream(handle, [&](Machine& machine, Stream& stream) {
    const auto found = machine.events.find(number_of(event));
    if (found == machine.events.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    if (found->second.record == nullptr) return CUDA_SUCCESS;
    Operation operation;
    operation.kind = "wait_event";
    put(machine, stream, std::move(operation), found->second.record);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return with_stream(handle, [&](Machine&, Stream& stream) {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream.priority;
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return with_stream(handle, [&](Machine&, Stream& stream) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.flags;
    return CUDA_SUCCESS;
  });
}
