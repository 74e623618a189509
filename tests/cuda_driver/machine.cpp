#include "machine.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace weightpress::cuda_driver {

int max_dynamic_shared(const FunctionEntry& function) {
  constexpr int kDefaultSharedBytes = 48 << 10;
  if (function.max_dynamic_shared >= 0) return function.max_dynamic_shared;
  return std::max(0, kDefaultSharedBytes - static_cast<int>(function.info->static_shared_bytes));
}

Machine::Machine(std::mutex& driver_mutex, Settings given)
    : settings(std::move(given)),
      scheduler(driver_mutex, settings.seed, settings.eager_percent, trace,
                [this](const Operation& operation, const Failure& failure) {
                  fail(operation.context, failure.result,
                       operation.name.empty() ? failure.message : operation.name + ": " + failure.message);
                }) {
  trace.open(settings);
  for (std::uint32_t i = 0; i < settings.num_devices; ++i)
    devices.push_back(std::make_unique<Device>(i, settings));
}

Machine::~Machine() = default;

Device* Machine::find_device(CUdevice device) {
  return device >= 0 && static_cast<std::size_t>(device) < devices.size()
             ? devices[static_cast<std::size_t>(device)].get()
             : nullptr;
}

Device* Machine::device_of(std::uint64_t address) {
  if (!looks_like_device_address(address)) return nullptr;
  const std::uint64_t index = ((address >> ptxvm::kAllocationShift) - kFirstDeviceNumber) / kNumbersPerDevice;
  return devices[std::min<std::uint64_t>(index, devices.size() - 1)].get();
}

std::uint8_t* Machine::device_bytes(std::uint64_t address, std::uint64_t bytes) {
  Device* const device = device_of(address);
  return device == nullptr ? nullptr : device->memory().host_pointer(address, bytes);
}

void Machine::mark_initialised(std::uint64_t address, std::uint64_t bytes) {
  if (Device* const device = device_of(address)) device->memory().mark_initialised(address, bytes);
}

Pinned* Machine::find_pinned(const void* pointer) {
  auto* const byte = static_cast<std::uint8_t*>(const_cast<void*>(pointer));
  auto found = pinned.upper_bound(byte);
  if (found == pinned.begin()) return nullptr;
  Pinned& range = (--found)->second;
  return static_cast<std::uint64_t>(byte - range.begin) < range.bytes ? &range : nullptr;
}

CUresult Machine::retain(Device& device, std::uint64_t* number) {
  if (device.lost != CUDA_SUCCESS) return device.lost;
  if (device.context == 0) {
    if (allocation_fails() || !device.take(settings.context_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    auto context = std::make_shared<Context>();
    context->number = new_number();
    context->device = &device;
    context->legacy.context = context->number;
    device.context = context->number;
    contexts.emplace(context->number, std::move(context));
  }
  ++device.num_retains;
  *number = device.context;
  return CUDA_SUCCESS;
}

void Machine::destroy(std::uint64_t number) {
  const std::shared_ptr<Context> context = contexts.at(number);
  if (context->dead == CUDA_SUCCESS) scheduler.force_context(number);
  scheduler.cancel(number);
  Device& device = *context->device;
  std::uint64_t num_ranges = 0, num_modules = 0;
  for (auto next = pinned.begin(); next != pinned.end();) {
    if (next->second.context != number) {
      ++next;
      continue;
    }
    unpin(next->second);
    next = pinned.erase(next);
    ++num_ranges;
  }
  for (auto next = modules.begin(); next != modules.end();) {
    const auto [module, owner] = std::pair(next->first, next->second.context);
    ++next;
    if (owner != number) continue;
    unload(module);
    ++num_modules;
  }
  const auto belongs = [number](const auto& entry) { return entry.second.context == number; };
  const std::uint64_t num_events = std::erase_if(events, belongs);
  const std::uint64_t num_streams =
      std::erase_if(streams, [number](const auto& entry) { return entry.second->context == number; });
  const std::uint64_t num_allocations = device.release_all(number);
  if (num_allocations + num_ranges + num_modules + num_events + num_streams != 0) {
    trace.note("left_over", device.index(),
               std::to_string(num_allocations) + " device allocations, " + std::to_string(num_ranges) +
                   " pinned ranges, " + std::to_string(num_modules) + " modules, " +
                   std::to_string(num_streams) + " streams, " + std::to_string(num_events) + " events");
  }
  device.give_back(settings.context_bytes);
  device.context = 0;
  device.num_retains = 0;
  contexts.erase(number);
}

void Machine::unpin(Pinned& range) {
  for (std::size_t i = 0; i < devices.size(); ++i) devices[i]->memory().free(range.bases[i]);
}

void Machine::unload(std::uint64_t number) {
  const auto found = modules.find(number);
  for (const auto& [name, function] : found->second.functions) functions.erase(function);
  modules.erase(found);
}

void Machine::finish() {
  const bool has_registered_memory =
      std::ranges::any_of(pinned, [](const auto& entry) { return entry.second.is_registered; });
  scheduler.finish(has_registered_memory);
  trace.totals(num_calls_, num_allocations_, num_launches_);
  trace.close();
}

void Machine::count_call() {
  if (++num_calls_ != settings.lose_device_at) return;
  if (Device* const device = find_device(static_cast<CUdevice>(settings.lost_device))) lose(*device);
}

void Machine::lose(Device& device) {
  device.lost = static_cast<CUresult>(settings.lost_result);
  trace.note("device_lost", device.index(), "at call " + std::to_string(num_calls_));
  if (device.context != 0)
    fail(device.context, device.lost, "the device was lost at call " + std::to_string(num_calls_));
}

bool Machine::allocation_fails() {
  ++num_allocations_;
  return settings.out_of_memory_at != 0 &&
         (num_allocations_ == settings.out_of_memory_at ||
          (settings.out_of_memory_stays && num_allocations_ > settings.out_of_memory_at));
}

bool Machine::launch_fails() {
  return ++num_launches_ == settings.fail_launch_at;
}

void Machine::note_kernel(Device& device) {
  if (++num_kernels_ == settings.flip_at)
    trace.note("bit_flipped", device.index(), device.flip_bit(scheduler.random()));
}

void Machine::fail(std::uint64_t number, CUresult result, const std::string& message) {
  const auto found = contexts.find(number);
  if (found == contexts.end() || found->second->dead != CUDA_SUCCESS) return;
  found->second->dead = result;
  const char* known = nullptr;
  cuGetErrorName(result, &known);
  const std::string name = known != nullptr ? known : "error " + std::to_string(static_cast<int>(result));
  std::fprintf(stderr, "emulated CUDA driver: %s: %s\n", name.c_str(), message.c_str());
  trace.note("context_lost", found->second->device->index(), name + ": " + message);
  scheduler.cancel(number);
}

}  // namespace weightpress::cuda_driver
