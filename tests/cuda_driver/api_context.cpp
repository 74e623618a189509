// The current context of a thread.
#include "calls.h"

using namespace weightpress::cuda_driver;

namespace {

// Of a context that is there, dead or alive; 0: none.
std::uint64_t known_context(Machine& machine, CUcontext handle) {
  const std::uint64_t number = number_of(handle);
  return machine.contexts.contains(number) ? number : 0;
}

}  // namespace

WP_CUDA_API CUresult cuCtxSetCurrent(CUcontext context) {
  return with_machine([&](Machine& machine) {
    std::vector<std::uint64_t>& stack = this_thread(Driver::get()).contexts;
    if (context == nullptr) {
      if (!stack.empty()) stack.pop_back();
      return CUDA_SUCCESS;
    }
    const std::uint64_t number = known_context(machine, context);
    if (number == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (stack.empty()) {
      stack.push_back(number);
    } else {
      stack.back() = number;
    }
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuCtxGetCurrent(CUcontext* context) {
  return with_machine([&](Machine&) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::vector<std::uint64_t>& stack = this_thread(Driver::get()).contexts;
    *context = stack.empty() ? nullptr : handle_of<CUcontext>(stack.back());
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return with_machine([&](Machine& machine) {
    const std::uint64_t number = known_context(machine, context);
    if (number == 0) return CUDA_ERROR_INVALID_CONTEXT;
    this_thread(Driver::get()).contexts.push_back(number);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return with_machine([&](Machine&) {
    std::vector<std::uint64_t>& stack = this_thread(Driver::get()).contexts;
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = handle_of<CUcontext>(stack.back());
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuCtxGetDevice(CUdevice* device) {
  return with_machine([&](Machine&) {
    CUresult result = CUDA_SUCCESS;
    const auto context = current_context(Driver::get(), result);
    if (context == nullptr) return result;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = static_cast<CUdevice>(context->device->index());
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuCtxSynchronize(void) {
  return with_context([](Machine& machine, Context& context) {
    machine.scheduler.force_context(context.number);
    // The thread has then waited for every stream.
    std::vector<OperationPtr> last{context.legacy.last};
    for (const auto& [number, stream] : machine.streams)
      if (stream->context == context.number) last.push_back(stream->last);
    for (const auto& [thread, stream] : context.per_thread) last.push_back(stream->last);
    for (const auto& stream : context.orphans) last.push_back(stream->last);
    context.orphans.clear();
    for (const OperationPtr& operation : last) wait_in_time(machine, operation);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return with_context([&](Machine&, Context&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}
