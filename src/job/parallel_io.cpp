#include "job/parallel_io.h"

#include <algorithm>
#include <exception>

namespace weightpress::job {
void transfer_in_pieces(std::uint64_t bytes, int num_threads,
                        const std::function<void(std::uint64_t offset, std::uint64_t bytes)>& transfer) {
  if (bytes <= kTransferPieceBytes) {
    transfer(0, bytes);
    return;
  }
  const std::uint64_t pieces = bytes / kTransferPieceBytes + (bytes % kTransferPieceBytes != 0);
  std::exception_ptr failure;
  // One thread takes pieces too: a caller may hold a buffer of a piece's size.
#pragma omp parallel for num_threads(static_cast<int>(std::min<std::uint64_t>(num_threads, pieces))) \
    schedule(dynamic)
  for (std::uint64_t piece = 0; piece < pieces; ++piece) {
    // An exception may not leave the region.
    try {
      const std::uint64_t offset = piece * kTransferPieceBytes;
      transfer(offset, std::min(kTransferPieceBytes, bytes - offset));
    } catch (...) {
#pragma omp critical(weightpress_transfer_failure)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weightpress::job
