// Large transfers in pieces on several threads: copies between the page cache and our buffers cost processor
// time.
#pragma once

#include <cstdint>
#include <functional>

namespace weightpress::job {

// Small enough for an even share, large enough that a call costs nothing beside it.
inline constexpr std::uint64_t kTransferPieceBytes = std::uint64_t{512} << 10;

/// Calls transfer(offset, bytes) for pieces that together make [first, end), in any order, on up to
/// num_threads threads. Pieces are cut at multiples of kTransferPieceBytes, wherever `first` lies. If calls
/// throw, one of their exceptions is thrown here once all threads are done.
void transfer_on_grid(std::uint64_t first, std::uint64_t end, int num_threads,
                      const std::function<void(std::uint64_t offset, std::uint64_t bytes)>& transfer);

/// The same for [0, bytes).
inline void transfer_in_pieces(
    std::uint64_t bytes, int num_threads,
    const std::function<void(std::uint64_t offset, std::uint64_t bytes)>& transfer) {
  transfer_on_grid(0, bytes, num_threads, transfer);
}

}  // namespace weightpress::job
