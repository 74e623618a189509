#include "job/held_weights.h"

#include <new>

#include <sys/mman.h>

namespace weightpress::job {
namespace {

constexpr std::uint64_t kAlignment = 64;

}  // namespace

HeldWeights::HeldWeights(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {
  if (capacity_bytes == 0) return;
  void* data = ::mmap(nullptr, capacity_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::uint8_t*>(data);
#ifdef MADV_HUGEPAGE
  ::madvise(data_, capacity_bytes, MADV_HUGEPAGE);  // where the system knows them
#endif
}

HeldWeights::~HeldWeights() {
  if (data_ != nullptr) ::munmap(data_, capacity_bytes_);
}

std::span<std::uint16_t> HeldWeights::take(std::uint64_t num_weights) {
  const std::uint64_t left = capacity_bytes_ - used_bytes_;
  if (num_weights == 0 || num_weights > left / sizeof(std::uint16_t)) return {};
  auto* begin = reinterpret_cast<std::uint16_t*>(data_ + used_bytes_);
  const std::uint64_t bytes = num_weights * sizeof(std::uint16_t);
  used_bytes_ += bytes;
  if (const std::uint64_t over = used_bytes_ % kAlignment; over != 0)
    used_bytes_ = used_bytes_ + kAlignment - over <= capacity_bytes_ ? used_bytes_ + kAlignment - over
                                                                     : capacity_bytes_;
  return {begin, num_weights};
}

}  // namespace weightpress::job
