// Pinned memory for buffers of any kind of caller.
#pragma once

#include <cstdint>
#include <memory>

#include "device/driver/gpu.h"

namespace weightpress::device {

/// Memory of the host, aligned to 64, that copies of all GPUs reach by themselves; ordinary memory where the
/// system gives no more of that. gpu must outlive it. Throws std::bad_alloc.
std::shared_ptr<void> pinned_or_ordinary_memory(const Gpu& gpu, std::uint64_t bytes);

}  // namespace weightpress::device
