// The device of a Tile-ANS run over a GPU that does as it is told: right, wrong or not at all. Whatever it
// does, what comes out is the CPU's.
#include "job/tile_ans_device.h"

#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/device_paths.h"
#include "support/host_tile_ans_back_end.h"
#include "support/tile_ans_faults.h"

namespace weightpress::job {
namespace {

using namespace testing;
using tile_ans::Completion;
using tile_ans::DecodeArguments;
using tile_ans::LaneMode;
using tile_ans::StageCode;
using tile_ans::StageStatus;

constexpr const char* kName = "cuda:3 (Made Up 9000)";

/// What the GPU does besides, or instead.
struct Script {
  std::function<void(std::span<tile_ans::Histogram>)> change_counts;
  /// After it has decoded as it should. elements: empty if they are not wanted.
  std::function<void(const DecodeArguments&, StageStatus&, std::uint64_t& sum)> change_decoding;
  int fails_at = -1;  ///< its n-th call throws
  ErrorCode code = ErrorCode::kDeviceFailed;
  bool fails_to_open = false;

  int num_calls = 0;
  std::uint64_t device_bytes = 0;  ///< that it was given
  bool is_gone = false;
};

class ToldBackEnd final : public HostTileAnsBackEnd {
 public:
  explicit ToldBackEnd(Script& script) : script_(script) {}
  ~ToldBackEnd() override {
    EXPECT_EQ(num_pinned_.use_count(), 1) << "memory has outlived the object";
    script_.is_gone = true;
  }

  Completion histogram(const tile_ans::HistogramArguments& arguments) override {
    call();
    const StageStatus status = HostTileAnsBackEnd::histogram(arguments).wait();
    if (script_.change_counts) script_.change_counts(arguments.histograms);
    return Completion(status);
  }
  Completion sizes(const tile_ans::EncodeArguments& arguments) override {
    call();
    return HostTileAnsBackEnd::sizes(arguments);
  }
  Completion encode(const tile_ans::EncodeArguments& arguments) override {
    call();
    return HostTileAnsBackEnd::encode(arguments);
  }
  Completion decode(const DecodeArguments& arguments) override {
    call();
    StageStatus status = HostTileAnsBackEnd::decode(arguments).wait();
    if (script_.change_decoding) script_.change_decoding(arguments, status, decoded_sum_);
    return Completion(status);
  }
  std::shared_ptr<void> pinned(std::uint64_t bytes) override {
    const std::shared_ptr<void> memory = HostTileAnsBackEnd::pinned(bytes);
    return {memory.get(), [memory, counter = num_pinned_](void*) {}};
  }

 private:
  void call() {
    if (script_.num_calls++ == script_.fails_at) throw Error(script_.code, "made-up trouble");
  }

  Script& script_;
  std::shared_ptr<int> num_pinned_ = std::make_shared<int>();
};

class ToldPath final : public device::GpuPath {
 public:
  explicit ToldPath(Script& script) : script_(script) {}
  std::unique_ptr<device::TileAnsBackEnd> make_tile_ans_back_end(std::uint64_t device_bytes) override {
    if (script_.fails_to_open) throw Error(ErrorCode::kOutOfMemory, "made-up trouble");
    script_.device_bytes = device_bytes;
    return std::make_unique<ToldBackEnd>(script_);
  }
  const std::string& name() const override { return name_; }

  // Of no use to Tile-ANS.
  void use() override { std::abort(); }
  df11::Df11Stages& stages() override { std::abort(); }
  df11::Df11DecodeStage& decode_stage() override { std::abort(); }
  std::uint64_t segment_weights() const override { std::abort(); }
  std::unique_ptr<device::UnitPipeline> make_pipeline(const device::UnitPipelineSizes&) override {
    std::abort();
  }
  std::unique_ptr<device::OfficialSlabKernel> load_official_kernel(const std::string&) override {
    std::abort();
  }
  std::unique_ptr<device::SlabDecoder> make_slab_decoder() override { std::abort(); }

 private:
  Script& script_;
  std::string name_ = kName;
};

/// A device with that GPU, and what it warns of.
struct Told {
  explicit Told(Script& script, bool is_required = false)
      : device(choice(script, is_required), 2, 12'345,
               [this](const std::string& text) { warnings.push_back(text); }) {}

  static DeviceChoice choice(Script& script, bool is_required) {
    DeviceChoice choice;
    choice.gpus.push_back(std::make_unique<ToldPath>(script));
    choice.is_required = is_required;
    choice.name = kName;
    choice.why = "it is the only one";
    return choice;
  }

  void expect_gpu_only() {
    EXPECT_TRUE(device.uses_gpu());
    EXPECT_EQ(device.name(), kName);
    EXPECT_EQ(device.why(), "it is the only one");
    EXPECT_STREQ(device.decoder(), "wp_tile_ans_decode");
    EXPECT_TRUE(warnings.empty());
  }
  void expect_given_up() {
    EXPECT_FALSE(device.uses_gpu());
    EXPECT_EQ(device.name(), "cpu");
    EXPECT_STREQ(device.decoder(), "host decoder");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(device.why().starts_with(std::string(kName) + ": ")) << device.why();
    EXPECT_EQ(warnings[0], "the GPU failed, and the CPU goes on: " + device.why());
  }

  std::vector<std::string> warnings;
  TileAnsDevice device;
};

/// Raw lanes and others, ten tiles of an odd number of elements, in slabs of 5.
class TileAnsDeviceTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kTile = 301;
  static constexpr Slabs kSlabs{.tiles = 5};

  static const StoredTileAns& sound() {
    static const StoredTileAns stored = [] {
      Random random(4);
      return StoredTileAns(RandomTensor::gaussian_bytes(random, 3'000, 4, 30), 4, kTile, 11, {0, 1, 0, 1});
    }();
    return stored;
  }
  static tile_ans::TensorPlan plan() {
    host::HostTileAnsStages host(1);
    tile_ans::TensorPlan plan =
        plan_with(host, sound().bytes, 4, {.tile_elements = kTile, .probability_bits = 11});
    for (std::uint32_t lane = 0; lane < 4; ++lane)
      plan.lanes[lane].mode = static_cast<LaneMode>(sound().buffers.lane_modes[lane]);
    return plan;
  }

  enum class Wants : std::uint8_t { kElements, kComparison, kBoth, kNeither };
  static constexpr Wants kAllWants[] = {Wants::kElements, Wants::kComparison, Wants::kBoth, Wants::kNeither};

  static Decoded decode(tile_ans::TileAnsDecodeStage& stage, const StoredTileAns& stored, Wants wants,
                        std::span<const std::uint8_t> source = sound().bytes) {
    const bool with_source = wants == Wants::kComparison || wants == Wants::kBoth;
    return stored.decode(stage, kSlabs, with_source ? source : std::span<const std::uint8_t>(),
                         wants == Wants::kElements || wants == Wants::kBoth);
  }
  /// All that a device is for, in 3 + 2 + 2 + 4 * 2 calls.
  static void expect_all_right(TileAnsDevice& device) {
    const std::uint64_t n = sound().shape[0];
    std::vector<tile_ans::Histogram> counted(4), expected(4);
    for (tile_ans::Histogram& histogram : counted) histogram.fill(3);  // what is there counts too
    expected = counted;
    for (std::uint64_t first = 0; first < n; first += 1'000) {
      device.histogram({std::span(sound().bytes).subspan(4 * first, 4'000), 4, counted}).wait();
    }
    host::HostTileAnsStages(1).histogram({sound().bytes, 4, expected}).wait();
    EXPECT_EQ(counted, expected);
    EXPECT_TRUE(encode_with(device, sound().bytes, plan(), kSlabs) == sound().buffers);
    for (const Wants wants : kAllWants) {
      const Decoded decoded = decode(device, sound(), wants);
      EXPECT_TRUE(decoded.ok());
      EXPECT_TRUE(decoded.bytes.empty() || decoded.bytes == sound().bytes);
    }
  }
  static constexpr int kNumCalls = 3 + 2 + 2 + 4 * 2;

  /// One call of the GPU that is not believed.
  static void expect_found_out(Script& script, const std::function<void(TileAnsDevice&)>& work) {
    const Script lie = script;
    Told told(script);
    work(told.device);
    told.expect_given_up();
    const int num_calls = script.num_calls;
    expect_all_right(told.device);
    EXPECT_EQ(script.num_calls, num_calls) << "later calls are the CPU's";
    EXPECT_EQ(told.warnings.size(), 1u);

    Script again = lie;
    Told required(again, true);
    try {
      work(required.device);
      ADD_FAILURE() << "a GPU that was asked for has failed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeviceFailed);
      EXPECT_TRUE(std::string(error.what()).starts_with(std::string(kName) + ": ")) << error.what();
    }
    EXPECT_TRUE(required.warnings.empty());
  }
};

TEST_F(TileAnsDeviceTest, AGpuThatWorksDoesItAll) {
  for (const bool is_required : {false, true}) {
    Script script;
    Told told(script, is_required);
    EXPECT_EQ(script.device_bytes, 12'345u);
    expect_all_right(told.device);
    told.expect_gpu_only();
    EXPECT_EQ(script.num_calls, kNumCalls);
  }
}

TEST_F(TileAnsDeviceTest, WithoutAGpu) {
  TileAnsDevice device({.gpus = {}, .is_required = false, .name = "cpu", .why = "it was asked for"}, 2, 0,
                       {});
  EXPECT_FALSE(device.uses_gpu());
  EXPECT_EQ(device.name(), "cpu");
  EXPECT_STREQ(device.decoder(), "host decoder");
  EXPECT_FALSE(device.memory());
  expect_all_right(device);
}

TEST_F(TileAnsDeviceTest, AGpuThatCannotBeOpened) {
  Script script{.fails_to_open = true};
  Told told(script);
  told.expect_given_up();
  EXPECT_FALSE(told.device.memory());
  expect_all_right(told.device);
  EXPECT_THROW(Told(script, true), Error);
}

TEST_F(TileAnsDeviceTest, CallsThatFail) {
  for (int call = 0; call <= kNumCalls; ++call) {
    for (const ErrorCode code : {ErrorCode::kDeviceFailed, ErrorCode::kOutOfMemory}) {
      // A slab that does not fit comes again in parts: only at the last tile it is told.
      const bool comes_again = code == ErrorCode::kOutOfMemory;
      SCOPED_TRACE(call);
      Script script{.fails_at = call, .code = code};
      Told told(script);
      expect_all_right(told.device);
      if (comes_again || call == kNumCalls) {
        told.expect_gpu_only();
      } else {
        told.expect_given_up();
        EXPECT_EQ(script.num_calls, call + 1);
      }
      Script again{.fails_at = call, .code = code};
      Told required(again, true);
      if (comes_again || call == kNumCalls) {
        expect_all_right(required.device);
      } else {
        EXPECT_THROW(expect_all_right(required.device), Error);
      }
    }
  }
}

TEST_F(TileAnsDeviceTest, CountsThatAreNot) {
  const std::function<void(std::span<tile_ans::Histogram>)> lies[] = {
      // With the right totals.
      [](auto counts) { std::swap(counts[0][0x80], counts[0][0]); },
      [](auto counts) { ++counts[3][7], --counts[3][8]; },
      [](auto counts) { counts[2][1] ^= std::uint64_t{1} << 40; },
      [](auto counts) { std::swap(counts[1], counts[2]); },
  };
  for (const auto& lie : lies) {
    for (const int call : {0, 2}) {
      Script script;
      script.change_counts = [&lie, number = 0, call](auto counts) mutable {
        if (number++ == call) lie(counts);
      };
      expect_found_out(script, [](TileAnsDevice& device) { expect_all_right(device); });
    }
  }
}

TEST_F(TileAnsDeviceTest, DecodedElementsThatAreNot) {
  using Lie = std::function<void(const DecodeArguments&, StageStatus&, std::uint64_t&)>;
  const auto flip = [](const DecodeArguments& arguments, std::size_t byte) {
    arguments.elements[byte] ^= 0x10;
    return plain_sum(arguments.elements, 4);
  };
  struct Case {
    Lie lie;
    std::vector<Wants> wants;
  };
  const Case cases[] = {
      // The sum, or what it is of on its way out.
      {[](auto&, auto&, auto& sum) { sum ^= 1; }, {Wants::kElements, Wants::kComparison, Wants::kBoth}},
      {[](auto&, auto&, auto& sum) { sum ^= std::uint64_t{1} << 63; },
       {Wants::kElements, Wants::kComparison, Wants::kBoth}},
      {[&](auto& arguments, auto&, auto&) { flip(arguments, 0); }, {Wants::kElements, Wants::kBoth}},
      {[&](auto& arguments, auto&, auto&) { flip(arguments, arguments.elements.size() - 1); },
       {Wants::kElements, Wants::kBoth}},
      // A raw lane's byte came in wrong, so the sum agrees with what came out.
      {[&](auto& arguments, auto&, auto& sum) { sum = flip(arguments, 4 * 77 + 1); },
       {Wants::kElements, Wants::kBoth}},
      {[&](auto& arguments, auto&, auto& sum) { sum = flip(arguments, arguments.elements.size() - 1); },
       {Wants::kElements, Wants::kBoth}},
      // Faults where there are none, one that encoding has among them.
      {[](auto& arguments, auto& status, auto&) {
         status = {StageCode::kTruncated, arguments.tiles.first_tile + 1, 2};
       },
       {Wants::kElements, Wants::kComparison, Wants::kBoth, Wants::kNeither}},
      {[](auto& arguments, auto& status, auto&) {
         status = {StageCode::kDiffers, arguments.tiles.first_tile, 0};
       },
       {Wants::kElements, Wants::kComparison, Wants::kBoth, Wants::kNeither}},
      {[](auto&, auto& status, auto&) { status = {StageCode::kSourceChanged, 0, 0}; },
       {Wants::kElements, Wants::kComparison, Wants::kBoth, Wants::kNeither}},
  };
  for (const Case& one : cases) {
    for (const Wants wants : one.wants) {
      for (const int call : {0, 1}) {
        SCOPED_TRACE("case " + std::to_string(&one - cases) + ", wants " +
                     std::to_string(static_cast<int>(wants)));
        Script script;
        script.change_decoding = [&one, number = 0, call](auto& arguments, auto& status, auto& sum) mutable {
          if (number++ == call) one.lie(arguments, status, sum);
        };
        expect_found_out(script, [wants](TileAnsDevice& device) {
          const Decoded decoded = decode(device, sound(), wants);
          EXPECT_TRUE(decoded.ok());
          EXPECT_TRUE(decoded.bytes.empty() || decoded.bytes == sound().bytes);
        });
      }
    }
  }
}

TEST_F(TileAnsDeviceTest, AFaultCountsOnceTheCpuFindsIt) {
  Random random(5);
  const std::vector<std::uint8_t> other = [] {
    std::vector<std::uint8_t> bytes = sound().bytes;
    bytes[4 * 301 * 5 + 7] ^= 2;
    return bytes;
  }();
  int num_faults = 0;
  for (int run = 0; run < 120; ++run) {
    SCOPED_TRACE(run);
    StoredTileAns faulty = sound();
    for (std::uint64_t faults = 1 + random.below(3); faults > 0; --faults) spoil(random, faulty.buffers);
    const std::span<const std::uint8_t> source = run % 4 == 0 ? other : sound().bytes;
    const Wants wants = kAllWants[random.below(4)];
    host::HostTileAnsDecodeStage host(1);
    const Decoded expected = decode(host, faulty, wants, source);
    if (!expected.error.empty()) continue;
    Script honest;
    Told told(honest);
    EXPECT_EQ(decode(told.device, faulty, wants, source).status, expected.status);
    told.expect_gpu_only();
    if (expected.status.ok()) continue;
    ++num_faults;

    // Of another kind, in another tile or lane.
    const std::function<void(StageStatus&)> lies[] = {
        [](StageStatus& status) {
          status.code = status.code == StageCode::kBadEnd ? StageCode::kTruncated : StageCode::kBadEnd;
        },
        [](StageStatus& status) { status.tile ^= 1; },
        [](StageStatus& status) { status.lane ^= 2; },
    };
    for (const auto& lie : lies) {
      Script script;
      script.change_decoding = [&lie](auto&, auto& status, auto&) {
        if (!status.ok()) lie(status);
      };
      expect_found_out(script, [&](TileAnsDevice& device) {
        EXPECT_EQ(decode(device, faulty, wants, source).status, expected.status);
      });
    }
  }
  EXPECT_GT(num_faults, 60);
}

/// Those that no sum of coded lanes can hide: of raw lanes, and bytes that differ.
TEST_F(TileAnsDeviceTest, FaultsThatTheGpuKeepsQuiet) {
  const std::uint64_t num_tiles = 10;
  struct Case {
    std::function<void(StoredTileAns&)> spoil;
    StageStatus expected;
  };
  const auto raw_stream = [&](std::uint32_t lane, std::uint64_t tile) { return lane * num_tiles + tile; };
  const Case cases[] = {
      // The byte that fills a stream's last word up.
      {[&](StoredTileAns& stored) {
         stored.buffers.payload[stored.buffers.offsets[raw_stream(1, 4) + 1] - 1] |= 0x100;
       },
       {StageCode::kBadPadding, 4, 1}},
      // Lengths, with the same words.
      {[&](StoredTileAns& stored) { ++stored.buffers.offsets[raw_stream(3, 7) + 1]; },
       {StageCode::kBadLength, 7, 3}},
      {[&](StoredTileAns& stored) { --stored.buffers.offsets[raw_stream(1, 2) + 1]; },
       {StageCode::kBadLength, 2, 1}},
      // Offsets that lead out of memory.
      {[&](StoredTileAns& stored) { stored.buffers.offsets[raw_stream(1, 5) + 1] = 0xFFFF'FFF0; },
       {StageCode::kBadLength, 5, 1}},
      {[&](StoredTileAns& stored) { stored.buffers.offsets[raw_stream(1, 4) + 1] = 0xFFFF'FFF0; },
       {StageCode::kBadLength, 4, 1}},
      // Right lengths, somewhere else.
      {[&](StoredTileAns& stored) {
         for (std::uint64_t i = raw_stream(1, 0); i <= raw_stream(1, 9) + 1; ++i)
           stored.buffers.offsets[i] += 1'000'000;
       },
       {StageCode::kBadOffsets, 0, 1}},
      {[&](StoredTileAns& stored) { stored.buffers.offsets[raw_stream(1, 5) + 1] = 0; },
       {StageCode::kBadOffsets, 5, 1}},
      {[&](StoredTileAns& stored) { stored.buffers.offsets[raw_stream(1, 3)] = 0xFFFF'FFF0; },
       {StageCode::kBadLength, 2, 1}},
  };
  for (const Case& one : cases) {
    StoredTileAns faulty = sound();
    one.spoil(faulty);
    for (const Wants wants : kAllWants) {
      SCOPED_TRACE("case " + std::to_string(&one - cases) + ", wants " +
                   std::to_string(static_cast<int>(wants)));
      // It claims to have decoded what should be there.
      Script script;
      script.change_decoding = [](const DecodeArguments& arguments, StageStatus& status, std::uint64_t& sum) {
        status = {};
        const auto right = slab_bytes(sound().bytes, arguments.layout, arguments.tiles);
        if (!arguments.elements.empty()) std::ranges::copy(right, arguments.elements.begin());
        sum = plain_sum(right, 4);
      };
      expect_found_out(script, [&](TileAnsDevice& device) {
        EXPECT_EQ(decode(device, faulty, wants).status, one.expected);
      });
    }
  }

  std::vector<std::uint8_t> other = sound().bytes;
  for (const std::size_t byte : {std::size_t{0}, std::size_t{4 * 301 * 4 + 2}, other.size() - 1}) {
    other[byte] ^= 1;
    for (const Wants wants : {Wants::kComparison, Wants::kBoth}) {
      Script script;
      script.change_decoding = [](auto&, auto& status, auto&) { status = {}; };
      expect_found_out(script, [&](TileAnsDevice& device) {
        EXPECT_EQ(decode(device, sound(), wants, other).status,
                  (StageStatus{StageCode::kDiffers, byte / (4 * 301), 0}));
      });
    }
    other[byte] ^= 1;
  }
}

TEST_F(TileAnsDeviceTest, MemoryStaysWhenTheGpuIsGivenUp) {
  Script script;
  {
    Told told(script);
    const SlabMemory memory = told.device.memory();
    ASSERT_TRUE(memory);
    const std::shared_ptr<void> before = memory(1'000);
    told.device.give_up({.code = ErrorCode::kDeviceFailed, .message = "what it made is not what was given"});
    told.expect_given_up();
    EXPECT_EQ(told.device.why(), std::string(kName) + ": what it made is not what was given");
    EXPECT_FALSE(told.device.memory());
    EXPECT_FALSE(script.is_gone) << "memory is its";
    EXPECT_NE(memory(1'000), nullptr) << "by what was asked for before";
    expect_all_right(told.device);
    EXPECT_EQ(script.num_calls, 0);
  }
  EXPECT_TRUE(script.is_gone);
  Script again;
  Told required(again, true);
  EXPECT_THROW(required.device.give_up({.code = ErrorCode::kDeviceFailed, .message = "x"}), Error);
}

}  // namespace
}  // namespace weightpress::job
