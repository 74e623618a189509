#include "job/block_hash.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdio>
#include <new>

#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the widest registers that the machine has
#else
#include <xxhash.h>
#endif

namespace weightpress::job {

std::uint64_t xxh3(std::string_view bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t xxh3_of(std::span<const std::uint64_t> values) {
  return XXH3_64bits(values.data(), values.size_bytes());
}

std::string hex16(std::uint64_t hash) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  return text.data();
}

struct BlockHash::OpenBlock {
  OpenBlock() {
    if (state == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(state.get());
  }

  struct Free {
    void operator()(XXH3_state_t* freed) const { XXH3_freeState(freed); }
  };
  std::unique_ptr<XXH3_state_t, Free> state{XXH3_createState()};
};

BlockHash::BlockHash(std::uint64_t total_bytes)
    : total_bytes_(total_bytes),
      blocks_(total_bytes / kTransferPieceBytes + (total_bytes % kTransferPieceBytes != 0)),
      mutex_(std::make_unique<std::mutex>()) {}

BlockHash::~BlockHash() = default;
BlockHash::BlockHash(BlockHash&&) noexcept = default;

void BlockHash::add(std::uint64_t offset_bytes, const void* data, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::uint64_t block = offset_bytes / kTransferPieceBytes;
  const std::uint64_t begin = block * kTransferPieceBytes;
  const std::uint64_t end = std::min(begin + kTransferPieceBytes, total_bytes_);
  assert(block < blocks_.size() && offset_bytes + bytes <= end);
  if (offset_bytes == begin && bytes == end - begin) {
    blocks_[block] = XXH3_64bits(data, bytes);
    return;
  }
  OpenBlock* open = nullptr;
  {
    const std::lock_guard lock(*mutex_);
    std::unique_ptr<OpenBlock>& slot = open_[block];
    if (slot == nullptr) slot = std::make_unique<OpenBlock>();
    open = slot.get();
  }
  // Whoever read it before gave up half way.
  if (offset_bytes == begin) XXH3_64bits_reset(open->state.get());
  XXH3_64bits_update(open->state.get(), data, bytes);
  if (offset_bytes + bytes != end) return;
  blocks_[block] = XXH3_64bits_digest(open->state.get());
  const std::lock_guard lock(*mutex_);
  open_.erase(block);
}

}  // namespace weightpress::job
