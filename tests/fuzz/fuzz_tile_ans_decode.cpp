// A tensor of any bytes, encoded in any tiles and precision, and read back with any faults in any buffer.
// Without faults: what the slow model makes, and the tensor again. With faults: every SIMD level, number of
// threads and slab judges alike, and what is accepted is the encoding of what it decodes to.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "host/tile_ans_stages.h"
#include "support/tile_ans_random.h"

using namespace weightpress;
using namespace weightpress::testing;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

template <class T>
void spoil(std::vector<T>& numbers, const std::uint8_t* fault) {
  const std::size_t at = numbers.empty() ? 0 : (fault[1] | fault[2] << 8) % numbers.size();
  switch (fault[0] >> 4) {
    case 0:
      numbers.insert(numbers.begin() + static_cast<std::ptrdiff_t>(at), static_cast<T>(fault[3]));
      break;
    case 1:
      if (numbers.size() > 1) numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 2:
      if (!numbers.empty())
        numbers[at] = static_cast<T>(numbers[at] + static_cast<T>(static_cast<std::int8_t>(fault[3])));
      break;
    default:
      if (!numbers.empty())
        numbers[at] = static_cast<T>(numbers[at] ^ static_cast<T>(T{1} << fault[3] % (8 * sizeof(T))));
  }
}

}  // namespace

// lanes and bits; tile (2 bytes); threshold; slabs; faults; four bytes for each; the tensor.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 6) return 0;
  const std::uint32_t num_lanes = 1u << (data[0] & 3);
  const std::uint32_t bits[] = {0, 9, 10, 11, 12};
  const tile_ans::Settings settings{static_cast<std::uint64_t>(data[1] | data[2] << 8), bits[data[0] / 4 % 5],
                                    data[3] / 255.0 * 8};
  const std::size_t num_faults = data[5] % 8;
  const std::uint8_t* const faults = data + 6;
  if (size < 6 + 4 * num_faults + num_lanes) return 0;
  std::vector<std::uint8_t> bytes(faults + 4 * num_faults, data + size);
  bytes.resize(bytes.size() / num_lanes * num_lanes);
  const Slabs slabs{.tiles = data[4] % 16 == 0 ? ~std::uint64_t{0} : data[4] % 16u,
                    .lane_by_lane = (data[4] & 16) != 0,
                    .histogram_elements = data[4] % 64 + 1u};

  host::HostTileAnsStages stages(1 + (data[4] >> 6), simd_levels().back());
  const tile_ans::TensorPlan plan = plan_with(stages, bytes, num_lanes, settings, slabs);
  TileAnsBuffers stored = encode_with(stages, bytes, plan, slabs);
  require(stored == SlowTileAns::encode(bytes, num_lanes,
                                        {settings.tile_elements, static_cast<int>(settings.probability_bits),
                                         settings.raw_lane_threshold}));

  for (std::size_t i = 0; i < num_faults; ++i) {
    const std::uint8_t* const fault = faults + 4 * i;
    switch (fault[0] % 6) {
      case 0:
        spoil(stored.payload, fault);
        // The last offset says so, or everything ends there.
        if (fault[0] & 8) stored.offsets.back() = static_cast<std::uint32_t>(stored.payload.size());
        break;
      case 1:
        spoil(stored.offsets, fault);
        break;
      case 2:
        spoil(stored.states, fault);
        break;
      case 3:
        spoil(stored.decode_tables, fault);
        break;
      case 4:
        spoil(stored.lane_modes, fault);
        break;
      default:
        spoil(stored.layout, fault);
    }
  }
  const std::uint64_t shape[] = {bytes.size() / num_lanes};
  host::HostTileAnsDecodeStage portable(1, host::SimdLevel::kPortable);
  host::HostTileAnsDecodeStage other(1 + (data[4] >> 6), simd_levels().back());
  const Decoded first = decode_with(portable, stored, shape, num_lanes);
  const Decoded second = decode_with(other, stored, shape, num_lanes, slabs);
  require(first.error == second.error && first.status == second.status);
  if (num_faults == 0) require(first.ok() && first.bytes == bytes);
  if (first.ok()) require(first.bytes == second.bytes && is_encoding_of(stored, first.bytes));
  return 0;
}
