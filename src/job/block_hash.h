// XXH3 of a buffer that comes in pieces, from many threads: the journal's proof of what was read and written.
//
// A buffer is cut into blocks of kTransferPieceBytes from its begin on; its hash is the XXH3 of the blocks'
// hashes. So it depends on the bytes alone, not on the slabs or threads that they came in, and a block is
// hashed while it is still in the cache of the thread that moved it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "job/parallel_io.h"

namespace weightpress::job {

/// XXH3, 64 bits.
std::uint64_t xxh3(std::string_view bytes, std::uint64_t seed = 0);
std::uint64_t xxh3_of(std::span<const std::uint64_t> values);

/// 16 lower-case hexadecimal digits.
std::string hex16(std::uint64_t hash);

class BlockHash {
 public:
  /// Of a buffer of so many bytes.
  explicit BlockHash(std::uint64_t total_bytes);
  ~BlockHash();
  BlockHash(BlockHash&&) noexcept;

  /// A piece that lies in one block, as transfer_on_grid() cuts them. Pieces of one block must come in order,
  /// and may begin anew; those of different blocks may come from different threads at once.
  void add(std::uint64_t offset_bytes, const void* data, std::uint64_t bytes);

  /// Once all is added.
  std::uint64_t digest() const { return xxh3_of(blocks_); }

 private:
  struct OpenBlock;  // of which a part is added

  std::uint64_t total_bytes_;
  std::vector<std::uint64_t> blocks_;
  std::unique_ptr<std::mutex> mutex_;
  std::map<std::uint64_t, std::unique_ptr<OpenBlock>> open_;
};

}  // namespace weightpress::job
