#include "job/selftest_tensors.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "job/selftest_random.h"

namespace weightpress::job {
namespace {

using Random = SelftestRandom;

/// What a lane consists of. tests/official/entropack/test_selftest_tensors.py makes the first five, too.
enum class LaneKind : std::uint8_t {
  kConstant,
  kFlat,       ///< all symbols alike: stored raw
  kBell,       ///< how many of 64 bits are set
  kSteep,      ///< how many of the lowest bits are 0: the exponents of weights
  kMostlyOne,  ///< one symbol, and any in one of 64 places
  kTwo,
  kEveryOnce  ///< all symbols in turn: equal counts
};
constexpr std::uint64_t kNumLaneKinds = 7;

std::uint8_t symbol_of(LaneKind kind, std::uint64_t random, std::uint64_t element) {
  switch (kind) {
    case LaneKind::kConstant:
      return 0x3C;
    case LaneKind::kFlat:
      return static_cast<std::uint8_t>(random);
    case LaneKind::kBell:
      return static_cast<std::uint8_t>(96 + std::popcount(random));
    case LaneKind::kSteep:
      return static_cast<std::uint8_t>(0x7C - std::countr_zero(random | std::uint64_t{1} << 40));
    case LaneKind::kMostlyOne:
      return static_cast<std::uint8_t>(random % 64 == 0 ? random >> 8 : 7);
    case LaneKind::kTwo:
      return static_cast<std::uint8_t>(random % 2 == 0 ? 0 : 255);
    case LaneKind::kEveryOnce:
      return static_cast<std::uint8_t>(element);
  }
  return 0;
}

std::vector<std::uint8_t> make_bytes(std::uint64_t num_elements, std::span<const LaneKind> kinds,
                                     Random& random) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(num_elements * kinds.size());
  for (std::uint64_t i = 0; i < num_elements; ++i)
    for (const LaneKind kind : kinds) bytes.push_back(symbol_of(kind, random.next(), i));
  return bytes;
}

/// At least one element.
std::uint64_t most_elements(std::uint64_t max_bytes, std::uint32_t num_lanes) {
  return std::max<std::uint64_t>(max_bytes / num_lanes, 1);
}

// ---- built-in tensors

struct BuiltIn {
  const char* name;
  std::uint64_t num_elements;
  std::vector<LaneKind> kinds;
  tile_ans::Settings settings;
};

const std::vector<BuiltIn>& built_in() {
  using enum LaneKind;
  static const std::vector<BuiltIn> all = {
      {"I8, three tiles", 10'000, {kBell}, {}},
      {"BF16, its mantissas raw, five tiles", 20'001, {kFlat, kSteep}, {}},
      {"F16, tiles of 1000, 11 bits",
       12'345,
       {kBell, kMostlyOne},
       {.tile_elements = 1000, .probability_bits = 11}},
      {"F32, tiles of 1001, 12 bits",
       9'100,
       {kFlat, kBell, kConstant, kSteep},
       {.tile_elements = 1001, .probability_bits = 12}},
      {"I64, small numbers",
       6'000,
       {kBell, kSteep, kConstant, kConstant, kConstant, kConstant, kConstant, kConstant},
       {}},
      {"U8, one symbol in one tile, 12 bits",
       5'000,
       {kConstant},
       {.tile_elements = tile_ans::kMaxTileElements, .probability_bits = 12, .raw_lane_threshold = 8}},
      {"I16, all raw, tiles of 33", 1'001, {kBell, kFlat}, {.tile_elements = 33}},
      {"U64, one element", 1, std::vector<LaneKind>(8, kFlat), {}},
      {"U32, raw from 3 bits on, 10 bits",
       8'000,
       {kBell, kSteep, kFlat, kConstant},
       {.probability_bits = 10, .raw_lane_threshold = 3}},
  };
  return all;
}

// Made by entropack 0.1.0, its eager code: tests/official/entropack/test_selftest_tensors.py, which makes
// these tensors without this file, prints them and compares them. First the tensor's, then payload, offsets,
// states, decode_tables, lane_modes, layout.
constexpr TileAnsHashes kHashes[] = {
    // clang-format off
    {"88d22ec2762924b5f85c1874439215c028a870306ae30ed5beb811d26e6c0a20",
     {"64a25195d69fd55229a890a57d7ed1324b282ba3e624de6b0c77f3b0eb14eaba",
      "8ffdcc8b6d7609952ba24f72bb500ebf6ae5d8716149edf273acf6d8ea017d92",
      "7a53f168294e96a34aacbb8bcd2e841f320a121ca2e0d19f2810afa34ab8dd17",
      "cf4ae81eb1a8860fddcda45015f3f2a868b66a20de5aaad1c841c4863a58c3d8",
      "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
      "1a3c419cd7b95e5f01b0e1fa5dc383ab40d75f5e929b2bcadbb78c3bad02ea66"}},
    {"0e0f8817dfeecd087d782ceeab43eba4c37056cf0bb592e31da7f72adc820bb2",
     {"c79be3f0f6b5649cdfb0806181b55d21e80a00b7e06d43d077ee3c85b708f80f",
      "e616aa79892442cf990eb008f32f76a5d20af943bfe8303e705627a4d8a3f0bd",
      "38f9d762ad054aceaef3b364888a4bea3f7bdc0ed7bd96c812f9862d7e5d8587",
      "0278d85afbaeef21c1c5fb85c6cf9e30dc021832e9ef1b446c68a2700c878d59",
      "47dc540c94ceb704a23875c11273e16bb0b8a87aed84de911f2133568115f254",
      "dcec3b40f3ba3fe89d226538b6a69e5ca708f89967999f968bd4cec374a8ccf2"}},
    {"25d5a87bb2642bc17ae4fcf080a8325011a370b1a2632cdafba823c9a43b9b69",
     {"a07b0c7f6e8995a0fb9f524f1a072b76c0f976d0da4ed0df9ac067a05e6b2fe1",
      "78845ed5f308abcc543f64fe538de1ff031597a66c1f8a3f588136cca31cea18",
      "f2ae3f3cf848d8aa59fc266eadd5c417790b872015b0a451b0d9f39e93bd8da3",
      "1c397b6537f47961a713a378b9c1d01e63d22100e9cb650f68ef93ef2ab461ae",
      "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
      "15b66e9a5708df2d2c3aa9f99f264bf20679305cc54d59ff302c0f220e8e2780"}},
    {"fb90f219805dba4ef3ca707fcce42414e82d20d4dc1c38f317ce0d6940ac36ee",
     {"8a38518c545e86420ba537dec9d3cbe0937fed5c24be2b18ffcb6e596b2ed2e2",
      "ad51f2b2b57da6db317a8f089592b4d6bb89a18fc6a68032a45e363983bbb7be",
      "d20f851c20364f598055d940f029f3d56a017e91593f6d518c8d53aa78190a74",
      "7ef94aa43f7850f78994c7cfce1d4ba9e753606def20ca751622eac6b1583daa",
      "67abdd721024f0ff4e0b3f4c2fc13bc5bad42d0b7851d456d88d203d15aaa450",
      "c4789a2f96db1308a79801723e0fe712076a3f28bf54c50f147ea5cddba4a882"}},
    {"58881c6ec3386017619ad126f870bfe4d7180f77f6eea1554045f83538c9f77f",
     {"a844e795c2527f24677bb34bc929ab6ef1707b2947cb6468714544e145119316",
      "b4e31e8c5a545100c97dd11e289fec95a977de8f9a65c4676e64cc374086e83f",
      "2d673b85036952a5fd3aebc2f5904ba9b0b342a74bb63160939021f3964eaef8",
      "4a6dcd79bdd4a5056836a3bb713189d4be51656c73edbb2a4380b4933e6b6a3d",
      "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc",
      "8d7ea727606995f903fba71bdf482e352113a9b81d519dac401e77e963552dd3"}},
    {"9bad1166b40974526c43b7a68815dc3df6eaa6a880b98a8d68c1e85a4074808e",
     {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc",
      "a8028dd1f140fd110abe9249ab220f817aec66a278498a4efb4fd1a16543235a",
      "efed8a07a63b3d4e287f38a0812102a6b6935e19e1f1ec3f1da4fced0b494805",
      "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
      "80f6bfa126321c5de73a185b6589143e49e2bda9f5ce194fe635fbcd7bcbb861"}},
    {"17599c569403381a48dafc68ca52b0065221d3eb1df38de21f506d93fde4bc77",
     {"c009401d4d99968418da480a43593048aed6513f975432da62e7883b3b58103f",
      "71743e9924158dcfd2c075fbda6a014f16a56803d7d2bb6019185a9b2cf20a34",
      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "605f49b79cb3b4a8d5e1d4ee4d646b8eb83c687074ccdee0bd948336534d46de",
      "9dcf97a184f32623d11a73124ceb99a5709b083721e878a16d78f596718ba7b2",
      "133467d85b3acac4ba05eef1ffba327a816b671a62f497036a538ec1bac604ac"}},
    {"4ab8d18aee159a5ac0255b0f6453a615139ec377bfdccfdbdeff3c5fce90124b",
     {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "6db65fd59fd356f6729140571b5bcd6bb3b83492a16e1bf0a3884442fc3c8a0e",
      "28df02ea8ddd37f2bbb84aae51c144216a30cab613d37c59451ee3158bb4cf0e",
      "2cb1e54ba47601fcf7a5de52f5a9b0f7c2f74d2eec7b7bf42f96725e2e72032b",
      "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc",
      "b3ea389f9bdd2356ef88d100c2501ed23ab7563315bbe35f876058f3d370bbd2"}},
    {"b0ca386b1a2130104ddd6b5d1bf4adff5bddc5a9797ad393968c9187dedeec52",
     {"edd188bc751009d57093b69f09e5246e77e44240f00d3cf7610939429090d8fc",
      "9ad5ad48d8a1e4dcb0ef9b60d9d897a6c3c513140b8de3e240e00ce239d2a456",
      "9d02d00dbfd181ec5343384773154ba6f56f00ca50ca49247578d7f401783313",
      "85f97bed0c5d0214573fba3b225f275f3f1a7cdc33d8f870d00b386e73739c7b",
      "507503b51960cceda8d924904fb85377fe7d177fb8dfcf56b24e4557644ed486",
      "6c4a99ed41cb1b22904172f72e5ea5f452a0ca2ffb6a77f78881bbf50d5ba500"}},
    // clang-format on
};

// ---- random tensors

/// Of which a tile or a lane is a multiple, or nearly: groups of states, what a warp and the CPU's blocks
/// take, tiles.
constexpr std::uint64_t kBorders[] = {32, 64, 512, 2048, 4096, 32'768};
// Each has 128 bytes of states, and a GPU's thread block.
constexpr std::uint64_t kMaxStreams = 2000;

std::uint64_t near_border(std::uint64_t most, Random& random) {
  const std::uint64_t border = kBorders[random.below(std::size(kBorders))];
  return border * (1 + random.below(std::max<std::uint64_t>(most / border, 1))) - 1 + random.below(3);
}

std::uint64_t random_count(std::uint64_t most, Random& random) {
  std::uint64_t count = 0;
  switch (random.below(4)) {
    case 0:
      count = 1 + random.below(100);
      break;
    case 1:
      count = near_border(most, random);
      break;
    case 2:  // of all orders of magnitude
      count = (most >> random.below(static_cast<std::uint64_t>(std::bit_width(most)))) - random.below(2);
      break;
    default:
      count = 1 + random.below(most);
  }
  return std::clamp<std::uint64_t>(count, 1, most);
}

tile_ans::Settings random_settings(Random& random) {
  tile_ans::Settings settings;
  switch (random.below(6)) {
    case 0:
    case 1:
      break;  // automatic
    case 2:
      settings.tile_elements = tile_ans::kMaxTileElements;
      break;
    case 3:
      settings.tile_elements = near_border(10'000, random);
      break;
    default:
      settings.tile_elements = 1 + random.below(random.below(2) == 0 ? 300 : 10'000);
  }
  if (random.below(2) == 0)
    settings.probability_bits = static_cast<std::uint32_t>(tile_ans::kMinProbabilityBits + random.below(4));
  constexpr double kThresholds[] = {7.9, 7.9, 7.9, 8, 5.5, 2, 0};
  settings.raw_lane_threshold = kThresholds[random.below(std::size(kThresholds))];
  return settings;
}

}  // namespace

std::vector<SelftestTensor> built_in_tensors(std::uint64_t max_bytes) {
  std::vector<SelftestTensor> tensors;
  for (const BuiltIn& from : built_in()) {
    SelftestTensor& tensor = tensors.emplace_back();
    tensor.seed = tensors.size() - 1;
    tensor.name = from.name;
    tensor.num_lanes = static_cast<std::uint32_t>(from.kinds.size());
    tensor.settings = from.settings;
    const std::uint64_t count = std::min(from.num_elements, most_elements(max_bytes, tensor.num_lanes));
    if (count == from.num_elements) tensor.hashes = &kHashes[tensor.seed];
    Random random(tensor.seed);
    tensor.bytes = make_bytes(count, from.kinds, random);
  }
  return tensors;
}

SelftestTensor random_tensor(std::uint64_t seed, std::uint64_t number, std::uint64_t max_bytes) {
  Random random(mix(~seed) + number);
  SelftestTensor tensor;
  tensor.seed = random.next();
  tensor.num_lanes = 1u << random.below(4);
  tensor.settings = random_settings(random);
  const std::uint64_t tile = tensor.settings.tile_elements;
  std::uint64_t most = most_elements(max_bytes, tensor.num_lanes);
  if (tile != 0) most = std::min(most, tile * (kMaxStreams / tensor.num_lanes));
  std::vector<LaneKind> kinds(tensor.num_lanes);
  for (LaneKind& kind : kinds) kind = static_cast<LaneKind>(random.below(kNumLaneKinds));
  tensor.bytes = make_bytes(random_count(most, random), kinds, random);
  tensor.name = "random tensor " + std::to_string(number) + " of seed " + std::to_string(seed) + " (" +
                std::to_string(tensor.num_elements()) + " elements of " + std::to_string(tensor.num_lanes) +
                (tensor.num_lanes == 1 ? " byte" : " bytes") + ", tile " + std::to_string(tile) + ", " +
                std::to_string(tensor.settings.probability_bits) + " bits)";
  return tensor;
}

}  // namespace weightpress::job
