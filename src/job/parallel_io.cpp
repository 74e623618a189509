#include "job/parallel_io.h"

#include <algorithm>
#include <exception>

namespace weightpress::job {
namespace {

// Small enough for an even share, large enough that a call costs nothing beside it.
constexpr std::uint64_t kPieceBytes = std::uint64_t{512} << 10;

}  // namespace

void transfer_in_pieces(std::uint64_t bytes, int num_threads,
                        const std::function<void(std::uint64_t offset, std::uint64_t bytes)>& transfer) {
  if (bytes <= kPieceBytes) {
    transfer(0, bytes);
    return;
  }
  const std::uint64_t pieces = bytes / kPieceBytes + (bytes % kPieceBytes != 0);
  std::exception_ptr failure;
  // One thread takes pieces too: a caller may hold a buffer of a piece's size.
#pragma omp parallel for num_threads(static_cast<int>(std::min<std::uint64_t>(num_threads, pieces))) \
    schedule(dynamic)
  for (std::uint64_t piece = 0; piece < pieces; ++piece) {
    // An exception may not leave the region.
    try {
      const std::uint64_t offset = piece * kPieceBytes;
      transfer(offset, std::min(kPieceBytes, bytes - offset));
    } catch (...) {
#pragma omp critical(weightpress_transfer_failure)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weightpress::job
