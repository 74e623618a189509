// The tensors that `weightpress selftest` encodes as Tile-ANS: built-in ones, and random ones.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "format/tile_ans_container.h"
#include "format/tile_ans_layout.h"

namespace weightpress::job {

/// SHA-256 of the tensor's bytes and of each buffer, in the order of tile_ans::Buffer.
struct TileAnsHashes {
  const char* elements;
  std::array<const char*, tile_ans::kNumBuffers> buffers;
};

struct SelftestTensor {
  std::string name;
  std::uint32_t num_lanes = 0;  ///< 1, 2, 4 or 8
  tile_ans::Settings settings;
  std::vector<std::uint8_t> bytes;  ///< of whole elements, one or more
  std::uint64_t seed = 0;           ///< of what is chosen at random for this tensor
  /// Of what the reference makes of a built-in tensor that is whole; else nullptr.
  const TileAnsHashes* hashes = nullptr;

  std::uint64_t num_elements() const { return bytes.size() / num_lanes; }
};

/// max_bytes: of a tensor; longer ones are cut, to one element at least. 1 or more.
std::vector<SelftestTensor> built_in_tensors(std::uint64_t max_bytes);

/// The tensor of that number: the same on every machine, whatever the other numbers. 1 to 8 lanes, each of
/// its own kind; all settings; 1 element to max_bytes (or one element), often at a border of tiles or of what
/// back ends take at once.
SelftestTensor random_tensor(std::uint64_t seed, std::uint64_t number, std::uint64_t max_bytes);

}  // namespace weightpress::job
