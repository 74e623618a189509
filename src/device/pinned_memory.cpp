#include "device/pinned_memory.h"

#include <cstddef>
#include <new>

#include <weightpress/error.h>

namespace weightpress::device {
namespace {

constexpr std::size_t kHostAlignment = 64;

}  // namespace

std::shared_ptr<void> pinned_or_ordinary_memory(const Gpu& gpu, std::uint64_t bytes) {
  try {
    gpu.use();
    auto memory = std::make_shared<PinnedBuffer>(gpu, bytes);
    return {memory, memory->data()};
  } catch (const Error&) {  // a GPU that is broken is noticed by what comes next
    void* const memory = ::operator new(bytes, std::align_val_t{kHostAlignment});
    return {memory, [](void* p) { ::operator delete(p, std::align_val_t{kHostAlignment}); }};
  }
}

}  // namespace weightpress::device
