// Large transfers in pieces on several threads: copies between the page cache and our buffers cost processor
// time.
#pragma once

#include <cstdint>
#include <functional>

namespace weightpress::job {

// Small enough for an even share, large enough that a call costs nothing beside it.
inline constexpr std::uint64_t kTransferPieceBytes = std::uint64_t{512} << 10;

/// Calls transfer(offset, bytes) for pieces of at most kTransferPieceBytes that together make [0, bytes), in
/// any order, on up to num_threads threads. Pieces begin at multiples of that. If calls throw, one of their
/// exceptions is thrown here once all threads are done.
void transfer_in_pieces(std::uint64_t bytes, int num_threads,
                        const std::function<void(std::uint64_t offset, std::uint64_t bytes)>& transfer);

}  // namespace weightpress::job
