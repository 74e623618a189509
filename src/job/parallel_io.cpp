#include "job/parallel_io.h"

#include <algorithm>
#include <exception>

namespace weightpress::job {

void transfer_on_grid(std::uint64_t first, std::uint64_t end, int num_threads,
                      const std::function<void(std::uint64_t offset, std::uint64_t bytes)>& transfer) {
  const std::uint64_t first_piece = first / kTransferPieceBytes;
  const std::uint64_t end_piece = end / kTransferPieceBytes + (end % kTransferPieceBytes != 0);
  if (end_piece <= first_piece + 1) {
    transfer(first, end - first);
    return;
  }
  const std::uint64_t pieces = end_piece - first_piece;
  std::exception_ptr failure;
  // One thread takes pieces too: a caller may hold a buffer of a piece's size.
#pragma omp parallel for num_threads(static_cast<int>(std::min<std::uint64_t>(num_threads, pieces))) \
    schedule(dynamic)
  for (std::uint64_t piece = first_piece; piece < end_piece; ++piece) {
    // An exception may not leave the region.
    try {
      const std::uint64_t from = std::max(piece * kTransferPieceBytes, first);
      const std::uint64_t to = std::min((piece + 1) * kTransferPieceBytes, end);
      transfer(from, to - from);
    } catch (...) {
#pragma omp critical(weightpress_transfer_failure)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weightpress::job
