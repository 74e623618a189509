// Slab memory with a guard behind it: what is taken beyond its end shows, also where asserts are off.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "job/tile_ans_slab.h"

namespace weightpress::testing {

class GuardedSlabMemory {
 public:
  explicit GuardedSlabMemory(std::uint64_t size_bytes)
      : memory_(size_bytes, [this](std::uint64_t bytes) { return guarded(bytes); }) {}

  job::TileAnsSlabMemory& get() { return memory_; }
  bool is_intact() const {
    return std::ranges::all_of(guard_, [](std::uint8_t byte) { return byte == kUntouched; });
  }

 private:
  static constexpr std::uint8_t kUntouched = 0xA5;
  static constexpr std::uint64_t kGuardBytes = 64 << 10;
  struct alignas(64) Block {
    std::uint8_t bytes[64];
  };

  std::shared_ptr<void> guarded(std::uint64_t bytes) {
    blocks_.resize((bytes + kGuardBytes) / sizeof(Block));
    auto* const begin = reinterpret_cast<std::uint8_t*>(blocks_.data());
    guard_ = {begin + bytes, kGuardBytes};
    std::ranges::fill(guard_, kUntouched);
    return {begin, [](void*) {}};
  }

  std::vector<Block> blocks_;
  std::span<std::uint8_t> guard_;
  job::TileAnsSlabMemory memory_;
};

}  // namespace weightpress::testing
