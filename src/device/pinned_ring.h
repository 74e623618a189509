// Pinned memory that goes round: parts that are filled, copied and free again once the copy is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/driver/gpu.h"

namespace weightpress::device {

/// Free once what was enqueued with it is done.
struct PinnedPart {
  PinnedPart(const Gpu& gpu, std::uint64_t bytes) : memory(gpu, bytes), done(gpu) {}
  PinnedBuffer memory;
  Event done;  ///< recorded by who uses it
  bool is_in_use = false;
};

class PinnedRing {
 public:
  static constexpr std::size_t kParts = 4;

  /// Throws CudaError.
  PinnedRing(const Gpu& gpu, std::uint64_t bytes_each) : bytes_each_(bytes_each) {
    parts_.reserve(kParts);
    for (std::size_t i = 0; i < kParts; ++i) parts_.emplace_back(gpu, bytes_each);
  }

  /// The next one, once it is free.
  PinnedPart& take() {
    PinnedPart& part = parts_[next_++ % kParts];
    if (part.is_in_use) part.done.wait();
    part.is_in_use = false;
    return part;
  }
  std::uint64_t bytes_each() const { return bytes_each_; }

 private:
  std::uint64_t bytes_each_;
  std::vector<PinnedPart> parts_;
  std::size_t next_ = 0;
};

}  // namespace weightpress::device
