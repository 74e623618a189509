// Copies and fills, synchronous and in streams (CUDA driver API, "API synchronization behavior").
//
// Pageable memory is read (host to device) when the call is made, or written (device to host) before it
// returns. Pinned memory is read and written when the operation runs, which is as late as can be.
#include <algorithm>
#include <cstring>
#include <vector>

#include "calls.h"

using namespace weightpress::cuda_driver;

namespace {

// How the calling thread and the operation go together.
enum class Call { kSynchronous, kAsynchronous };

struct HostSide {
  std::uint8_t* bytes = nullptr;
  bool is_pinned = false, is_registered = false;
};

// What a pointer of the host is; false if it can be none, or if only a part is pinned.
bool look_at(Machine& machine, const void* pointer, std::uint64_t bytes, HostSide& side) {
  const auto value = reinterpret_cast<std::uint64_t>(pointer);
  if (pointer == nullptr || looks_like_device_address(value) || bytes > ~value) return false;
  side.bytes = static_cast<std::uint8_t*>(const_cast<void*>(pointer));
  const Pinned* const range = machine.find_pinned(pointer);
  if (range == nullptr) {
    const auto next = machine.pinned.lower_bound(side.bytes);
    return next == machine.pinned.end() || static_cast<std::uint64_t>(next->first - side.bytes) >= bytes;
  }
  side.is_pinned = true;
  side.is_registered = range->is_registered;
  return bytes <= range->bytes - static_cast<std::uint64_t>(side.bytes - range->begin);
}

Failure gone(const char* what) {
  return {CUDA_ERROR_ILLEGAL_ADDRESS, std::string(what) + " device memory that is no longer there"};
}

std::uint64_t copy_ns(const Settings& settings, std::uint64_t bytes, double gbps) {
  return settings.copy_latency_ns + duration_of(static_cast<double>(bytes), gbps);
}

CUresult copy_in(Machine& machine, Context& context, CUdeviceptr to, const void* from, std::size_t bytes,
                 CUstream handle, Call call) {
  std::shared_ptr<Stream> stream;
  const CUresult result = find_stream(machine, context, handle, false, stream);
  HostSide side;
  if (result != CUDA_SUCCESS || bytes == 0) return result;
  if (machine.device_bytes(to, bytes) == nullptr || !look_at(machine, from, bytes, side))
    return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.kind = "copy_in";
  operation.engine = Engine::kCopyIn;
  operation.bytes = bytes;
  operation.is_pinned = side.is_pinned;
  operation.touches_program_memory = side.is_registered;
  operation.duration_ns =
      copy_ns(machine.settings, bytes,
              side.is_pinned ? machine.settings.copy_in_gbps : machine.settings.pageable_gbps);
  const auto write = [&machine, to, bytes](const std::uint8_t* source) -> std::optional<Failure> {
    std::uint8_t* const target = machine.device_bytes(to, bytes);
    if (target == nullptr) return gone("a copy to");
    std::memcpy(target, source, bytes);
    machine.mark_initialised(to, bytes);
    return std::nullopt;
  };
  if (side.is_pinned) {
    operation.run = [write, source = side.bytes](Operation&) { return write(source); };
  } else {
    if (call == Call::kSynchronous) machine.scheduler.force(stream->last);
    operation.run = [write, staged = std::vector<std::uint8_t>(side.bytes, side.bytes + bytes)](Operation&) {
      return write(staged.data());
    };
  }
  const OperationPtr copy = put(machine, *stream, std::move(operation));
  if (side.is_pinned && call == Call::kSynchronous) machine.scheduler.force(copy);
  if (!side.is_pinned || call == Call::kSynchronous) wait_in_time(machine, copy);
  return CUDA_SUCCESS;
}

CUresult copy_out(Machine& machine, Context& context, void* to, CUdeviceptr from, std::size_t bytes,
                  CUstream handle, Call call) {
  std::shared_ptr<Stream> stream;
  const CUresult result = find_stream(machine, context, handle, false, stream);
  HostSide side;
  if (result != CUDA_SUCCESS || bytes == 0) return result;
  if (machine.device_bytes(from, bytes) == nullptr || !look_at(machine, to, bytes, side))
    return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.kind = "copy_out";
  operation.engine = Engine::kCopyOut;
  operation.bytes = bytes;
  operation.is_pinned = side.is_pinned;
  operation.touches_program_memory = side.is_registered;
  operation.duration_ns =
      copy_ns(machine.settings, bytes,
              side.is_pinned ? machine.settings.copy_out_gbps : machine.settings.pageable_gbps);
  operation.run = [&machine, target = side.bytes, from, bytes](Operation&) -> std::optional<Failure> {
    const std::uint8_t* const source = machine.device_bytes(from, bytes);
    if (source == nullptr) return gone("a copy from");
    std::memcpy(target, source, bytes);
    return std::nullopt;
  };
  const OperationPtr copy = put(machine, *stream, std::move(operation));
  if (side.is_pinned && call == Call::kAsynchronous) return CUDA_SUCCESS;
  machine.scheduler.force(copy);
  wait_in_time(machine, copy);
  return CUDA_SUCCESS;
}

// Marks of what is initialised move with the bytes.
void move_marks(Machine& machine, CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << weightpress::ptxvm::kAllocationShift) - 1;
  const auto* const source = machine.device_of(from)->memory().find(from);
  const auto* const target = machine.device_of(to)->memory().find(to);
  if (target->initialised == nullptr) return;
  std::uint8_t* const marks = target->initialised + (to & kOffsetMask);
  if (source->initialised == nullptr) {
    std::memset(marks, 1, bytes);
  } else {
    std::memmove(marks, source->initialised + (from & kOffsetMask), bytes);
  }
}

CUresult copy_device(Machine& machine, Context& context, CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                     CUstream handle) {
  std::shared_ptr<Stream> stream;
  const CUresult result = find_stream(machine, context, handle, false, stream);
  if (result != CUDA_SUCCESS || bytes == 0) return result;
  if (machine.device_bytes(to, bytes) == nullptr || machine.device_bytes(from, bytes) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.kind = "copy_device";
  operation.engine = Engine::kCompute;
  operation.bytes = bytes;
  operation.duration_ns = machine.settings.launch_latency_ns +
                          duration_of(2 * static_cast<double>(bytes), machine.settings.memory_gbps);
  operation.run = [&machine, to, from, bytes](Operation&) -> std::optional<Failure> {
    std::uint8_t* const target = machine.device_bytes(to, bytes);
    const std::uint8_t* const source = machine.device_bytes(from, bytes);
    if (target == nullptr || source == nullptr) return gone("a copy between");
    std::memmove(target, source, bytes);
    move_marks(machine, to, from, bytes);
    return std::nullopt;
  };
  put(machine, *stream, std::move(operation));
  return CUDA_SUCCESS;
}

CUresult copy_host(Machine& machine, Context& context, void* to, const void* from, std::size_t bytes,
                   CUstream handle, Call call) {
  std::shared_ptr<Stream> stream;
  const CUresult result = find_stream(machine, context, handle, false, stream);
  HostSide target, source;
  if (result != CUDA_SUCCESS || bytes == 0) return result;
  if (!look_at(machine, to, bytes, target) || !look_at(machine, from, bytes, source))
    return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.kind = "copy_host";
  operation.bytes = bytes;
  operation.is_pinned = target.is_pinned && source.is_pinned;
  operation.touches_program_memory =
      target.is_registered || source.is_registered || !target.is_pinned || !source.is_pinned;
  operation.run = [target, source, bytes](Operation&) -> std::optional<Failure> {
    std::memmove(target.bytes, source.bytes, bytes);
    return std::nullopt;
  };
  const bool is_late = operation.is_pinned && call == Call::kAsynchronous;
  const OperationPtr copy = put(machine, *stream, std::move(operation));
  if (is_late) return CUDA_SUCCESS;
  machine.scheduler.force(copy);
  wait_in_time(machine, copy);
  return CUDA_SUCCESS;
}

// By what the two addresses are.
CUresult copy_unified(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream handle, Call call) {
  return with_context([&](Machine& machine, Context& context) {
    const bool from_device = looks_like_device_address(from), to_device = looks_like_device_address(to);
    auto* const host_to = reinterpret_cast<void*>(to);
    const auto* const host_from = reinterpret_cast<const void*>(from);
    if (to_device && from_device) return copy_device(machine, context, to, from, bytes, handle);
    if (to_device) return copy_in(machine, context, to, host_from, bytes, handle, call);
    if (from_device) return copy_out(machine, context, host_to, from, bytes, handle, call);
    return copy_host(machine, context, host_to, host_from, bytes, handle, call);
  });
}

template <class Value>
CUresult fill(CUdeviceptr to, Value value, std::size_t count, CUstream handle) {
  return with_context([&](Machine& machine, Context& context) {
    std::shared_ptr<Stream> stream;
    const CUresult result = find_stream(machine, context, handle, false, stream);
    if (result != CUDA_SUCCESS) return result;
    if (count > weightpress::ptxvm::kMaxAllocationBytes || to % sizeof(Value) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const std::size_t bytes = count * sizeof(Value);
    if (bytes == 0) return CUDA_SUCCESS;
    if (machine.device_bytes(to, bytes) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Operation operation;
    operation.kind = "fill";
    operation.engine = Engine::kCompute;
    operation.bytes = bytes;
    operation.duration_ns = machine.settings.launch_latency_ns +
                            duration_of(static_cast<double>(bytes), machine.settings.memory_gbps);
    operation.run = [&machine, to, value, count, bytes](Operation&) -> std::optional<Failure> {
      std::uint8_t* const target = machine.device_bytes(to, bytes);
      if (target == nullptr) return gone("a fill of");
      for (std::size_t i = 0; i < count; ++i) std::memcpy(target + i * sizeof value, &value, sizeof value);
      machine.mark_initialised(to, bytes);
      return std::nullopt;
    };
    put(machine, *stream, std::move(operation));
    return CUDA_SUCCESS;
  });
}

}  // namespace

WP_CUDA_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_unified(to, from, bytes, nullptr, Call::kSynchronous);
}

WP_CUDA_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_unified(to, from, bytes, stream, Call::kAsynchronous);
}

WP_CUDA_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return with_context([&](Machine& machine, Context& context) {
    return copy_in(machine, context, to, from, bytes, nullptr, Call::kSynchronous);
  });
}

WP_CUDA_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return with_context([&](Machine& machine, Context& context) {
    return copy_in(machine, context, to, from, bytes, stream, Call::kAsynchronous);
  });
}

WP_CUDA_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return with_context([&](Machine& machine, Context& context) {
    return copy_out(machine, context, to, from, bytes, nullptr, Call::kSynchronous);
  });
}

WP_CUDA_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return with_context([&](Machine& machine, Context& context) {
    return copy_out(machine, context, to, from, bytes, stream, Call::kAsynchronous);
  });
}

WP_CUDA_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return with_context([&](Machine& machine, Context& context) {
    return copy_device(machine, context, to, from, bytes, nullptr);
  });
}

WP_CUDA_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return with_context([&](Machine& machine, Context& context) {
    return copy_device(machine, context, to, from, bytes, stream);
  });
}

WP_CUDA_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return fill(to, value, count, nullptr);
}

WP_CUDA_API CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return fill(to, value, count, nullptr);
}

WP_CUDA_API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return fill(to, value, count, nullptr);
}

WP_CUDA_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}

WP_CUDA_API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}

WP_CUDA_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}
