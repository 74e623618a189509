// One slab of a Tile-ANS tensor in memory, and its way between memory and files.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "format/tile_ans_container.h"
#include "format/tile_ans_plan.h"
#include "format/tile_ans_stages.h"
#include "job/slab_memory.h"
#include "model/file.h"

namespace weightpress::job {

/// All that a slab needs, in one block: however large tensors and tiles are, it never grows.
class TileAnsSlabMemory {
 public:
  /// memory: where it comes from. Throws std::bad_alloc.
  explicit TileAnsSlabMemory(std::uint64_t size_bytes, const SlabMemory& memory = {});

  std::uint64_t size_bytes() const { return blocks_ * kBlockBytes; }
  /// Forgets what was taken.
  void reset() { next_ = 0; }
  /// Precondition: it is there; encode_bytes() and decode_bytes() count it.
  template <class T>
  std::span<T> take(std::uint64_t count) {
    static_assert(alignof(T) <= kBlockBytes);
    std::byte* const place = memory_.get() + next_ * kBlockBytes;
    next_ += (count * sizeof(T) + kBlockBytes - 1) / kBlockBytes;
    assert(next_ <= blocks_);
    return {reinterpret_cast<T*>(place), count};
  }

 private:
  static constexpr std::uint64_t kBlockBytes = 64;

  std::uint64_t blocks_;
  std::shared_ptr<std::byte[]> memory_;
  std::uint64_t next_ = 0;
};

/// Bytes of TileAnsSlabMemory that a slab of so many tiles takes at most while it is encoded, with what reads
/// it back if need be, or while it is decoded.
std::uint64_t encode_bytes(const tile_ans::Layout& layout, std::uint64_t num_tiles, bool reads_back);
std::uint64_t decode_bytes(const tile_ans::Layout& layout, std::uint64_t num_tiles);
/// The most tiles, at least one, for which bytes_of(num_tiles) is not above `memory_bytes`.
template <class BytesOf>
std::uint64_t tiles_in(const tile_ans::Layout& layout, std::uint64_t memory_bytes, BytesOf bytes_of) {
  std::uint64_t least = 1, above = layout.num_tiles() + 1;
  while (above - least > 1) {
    const std::uint64_t middle = least + (above - least) / 2;
    (bytes_of(middle) <= memory_bytes ? least : above) = middle;
  }
  return least;
}

/// Where the buffers of a tensor are stored, each perhaps in a file of its own.
struct StoredBuffers {
  struct Place {
    const model::File* file = nullptr;
    std::uint64_t offset_bytes = 0;
  };
  std::array<Place, tile_ans::kNumBuffers> places;

  const Place& operator[](tile_ans::Buffer buffer) const { return places[static_cast<std::size_t>(buffer)]; }
  /// The part must be inside the buffer.
  template <class T>
  void read(tile_ans::Buffer buffer, std::uint64_t first, std::span<T> data, int num_threads) const {
    read_bytes(buffer, first * sizeof(T), {reinterpret_cast<std::uint8_t*>(data.data()), data.size_bytes()},
               num_threads);
  }

 private:
  void read_bytes(tile_ans::Buffer buffer, std::uint64_t offset_bytes, std::span<std::uint8_t> data,
                  int num_threads) const;
};

/// What is decoded, and what it is compared with or written to.
struct StoredSlab {
  const tile_ans::TensorPlan& plan;  ///< as read_container() makes it, or as it was written
  std::uint64_t payload_words = 0;
  const StoredBuffers& buffers;
  tile_ans::TileRange tiles;
  std::span<const std::uint8_t> source = {};  ///< as in DecodeArguments
  std::span<std::uint8_t> elements = {};      ///< the same
};

/// Reads the stored streams of a slab and decodes them. Takes its buffers from `memory`, which it does not
/// reset.
tile_ans::StageStatus decode_slab(const StoredSlab& slab, tile_ans::TileAnsDecodeStage& stage,
                                  TileAnsSlabMemory& memory, int num_threads);

}  // namespace weightpress::job
