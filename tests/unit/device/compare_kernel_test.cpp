// kernels/compare.cu in the interpreter, all checks on: whatever the sizes, alignments and grids, its result
// is what plain loops over the same bytes find, and no byte outside the buffers is read.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "device/embedded_kernels.h"
#include "kernels/kernel_policy.h"
#include "ptxvm/launch.h"
#include "support/weights.h"

namespace weightpress::device {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Result = CompareKernel::Result;
using ptxvm::AllocationOptions;
using weightpress::testing::Random;

constexpr std::uint64_t kTile = CompareKernel::kTileBytes;

struct Case {
  std::uint64_t bytes = 0;
  std::uint32_t a_offset = 0, b_offset = 0;  ///< from an address that is a multiple of 256
  std::vector<std::uint64_t> different;      ///< offsets, each once
  std::uint32_t num_blocks = 1;
  std::uint64_t seed = 0;  ///< of the data and of the order of threads
  int num_threads = 1;     ///< of the host
};

std::string text_of(const Case& one) {
  std::string text = std::to_string(one.bytes) + " bytes, a +" + std::to_string(one.a_offset) + ", b +" +
                     std::to_string(one.b_offset) + ", " + std::to_string(one.num_blocks) + " blocks, seed " +
                     std::to_string(one.seed) + ", different:";
  for (std::size_t i = 0; i < one.different.size() && i < 10; ++i) {
    text += ' ';
    text += std::to_string(one.different[i]);
  }
  return text;
}

class CompareKernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const EmbeddedImage& image : embedded_images())
      if (image.is_ptx() && image.module == CompareKernel::kModule) {
        auto module = ptxvm::LoadedModule::load(
            {reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size()}, memory_);
        ASSERT_TRUE(module.has_value()) << module.error().message;
        module_ = std::move(*module);
      }
    if (module_ == nullptr) GTEST_SKIP() << why_no_kernels();
  }

  std::uint64_t allocate(std::uint64_t bytes, const char* name) {
    AllocationOptions options;
    options.name = name;
    options.starts_uninitialised = true;
    return memory_.allocate(bytes, options);
  }

  std::optional<ptxvm::Fault> launch(const CompareKernel::Parameters& parameters, std::uint32_t num_blocks,
                                     ptxvm::LaunchOptions options) {
    options.check_initialised = options.check_races = options.check_barriers = true;
    std::vector<std::uint8_t> bytes(sizeof parameters);
    std::memcpy(bytes.data(), &parameters, sizeof parameters);
    const ptxvm::LaunchConfig config{{num_blocks}, {CompareKernel::kThreads}};
    const auto report = ptxvm::launch(*module_, CompareKernel::kEntry, config,
                                      std::span<const std::uint8_t>(bytes), memory_, options);
    EXPECT_TRUE(report.has_value()) << report.error().message;
    return report.has_value() ? report->fault : std::nullopt;
  }

  Result read_result(std::uint64_t d_result) {
    Result result;
    std::uint8_t bytes[sizeof result];
    EXPECT_TRUE(memory_.read(d_result, bytes));
    std::memcpy(&result, bytes, sizeof result);
    return result;
  }

  void write_result(std::uint64_t d_result, const Result& result) {
    std::uint8_t bytes[sizeof result];
    std::memcpy(bytes, &result, sizeof result);
    ASSERT_TRUE(memory_.write(d_result, bytes));
  }

  /// Only the bytes of the buffers are initialised, and b's allocation ends with them (a's a while later):
  /// reading any other is a fault.
  void run(const Case& one) {
    SCOPED_TRACE(text_of(one));
    Random random(one.seed);
    Bytes a(one.bytes);
    for (std::uint8_t& byte : a) byte = static_cast<std::uint8_t>(random.next() % 3);
    Bytes b = a;
    for (const std::uint64_t offset : one.different)
      b[offset] ^= static_cast<std::uint8_t>(1u << random.below(8));
    Result expected;
    for (std::uint64_t i = 0; i < one.bytes; ++i) expected.num_different += a[i] != b[i];
    const auto [here, there] = std::mismatch(a.begin(), a.end(), b.begin());
    if (here != a.end()) expected.first_different = static_cast<std::uint64_t>(here - a.begin());

    const std::uint64_t d_a = allocate(one.a_offset + one.bytes + 64, "a");
    const std::uint64_t d_b = allocate(one.b_offset + one.bytes, "b");
    const std::uint64_t d_result = allocate(sizeof(Result), "result");
    const CompareKernel::Parameters parameters{d_a + one.a_offset, d_b + one.b_offset, one.bytes, d_result};
    ASSERT_TRUE(memory_.write(parameters.d_a, a));
    ASSERT_TRUE(memory_.write(parameters.d_b, b));
    write_result(d_result, {});
    ptxvm::LaunchOptions options;
    options.seed = one.seed;
    options.num_threads = one.num_threads;
    const auto fault = launch(parameters, one.num_blocks, options);
    EXPECT_FALSE(fault.has_value()) << fault->message;
    const Result found = read_result(d_result);
    EXPECT_EQ(found.num_different, expected.num_different);
    EXPECT_EQ(found.first_different, expected.first_different);
    for (const std::uint64_t address : {d_a, d_b, d_result}) ASSERT_TRUE(memory_.free(address));
  }

  ptxvm::Memory memory_;
  std::unique_ptr<ptxvm::LoadedModule> module_;
};

/// Nothing, the first byte, the last, both, some, all: by `kind`, any number.
std::vector<std::uint64_t> differences(std::uint64_t bytes, std::uint64_t kind, Random& random) {
  if (bytes == 0) return {};
  switch (kind % 7) {
    case 0:
      return {};
    case 1:
      return {0};
    case 2:
      return {bytes - 1};
    case 3:
      return bytes == 1 ? std::vector<std::uint64_t>{0} : std::vector<std::uint64_t>{0, bytes - 1};
    case 4:
      return {random.below(bytes)};
    case 5:
      break;
    default: {
      std::vector<std::uint64_t> all(bytes);
      for (std::uint64_t i = 0; i < bytes; ++i) all[i] = i;
      return all;
    }
  }
  std::vector<std::uint64_t> some(1 + random.below(20));
  for (std::uint64_t& offset : some) offset = random.below(bytes);
  std::sort(some.begin(), some.end());
  some.erase(std::unique(some.begin(), some.end()), some.end());
  return some;
}

TEST_F(CompareKernelTest, SmallSizesAtEveryAlignment) {
  std::uint64_t seed = 0;
  for (std::uint64_t bytes = 0; bytes <= 100; ++bytes)
    for (std::uint32_t alignment = 0; alignment < 16; ++alignment, ++seed) {
      Random random(seed);
      // Both buffers aligned alike, then not.
      Case one{bytes, alignment, alignment + 16, differences(bytes, seed, random), 1, seed};
      run(one);
      one.b_offset = static_cast<std::uint32_t>(random.below(16));
      one.different = differences(bytes, random.next(), random);
      run(one);
      if (HasFailure()) return;
    }
}

TEST_F(CompareKernelTest, EveryPairOfAlignments) {
  std::uint64_t seed = 10'000;
  for (const std::uint64_t bytes : {1u, 16u, 33u, 331u})
    for (std::uint32_t a = 0; a < 16; ++a)
      for (std::uint32_t b = 0; b < 16; ++b, ++seed) {
        Random random(seed);
        run({bytes, a, b, differences(bytes, seed, random), 1 + static_cast<std::uint32_t>(seed % 2), seed});
        if (HasFailure()) return;
      }
}

TEST_F(CompareKernelTest, EachByteOfWordsAlone) {
  // One byte differs, in turn each of the head, of words that different loads take, and of the tail.
  constexpr std::uint64_t kWords = CompareKernel::kThreads + 2, kBytes = 5 + kWords * 16 + 7;
  for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{CompareKernel::kThreads - 1} * 16})
    for (std::uint64_t offset = begin; offset < std::min(begin + 60, kBytes); ++offset) {
      run({kBytes, 11, 27, {offset}, 1, 20'000 + offset});
      if (HasFailure()) return;
    }
}

TEST_F(CompareKernelTest, BordersOfTilesAndBlocks) {
  std::uint64_t seed = 30'000;
  for (const std::uint64_t tiles : {1u, 2u, 3u})
    for (const std::int64_t more : {-17, -16, -15, -1, 0, 1, 15, 16, 17, 4'096})
      for (const std::uint32_t num_blocks : {1u, 2u, 5u}) {
        ++seed;
        Random random(seed);
        const std::uint64_t bytes = tiles * kTile + static_cast<std::uint64_t>(more);
        const auto a = static_cast<std::uint32_t>(random.below(16));
        // Mostly aligned alike: there words are compared.
        const std::uint32_t b = seed % 4 == 0 ? static_cast<std::uint32_t>(random.below(16)) : a;
        run({bytes, a, b, differences(bytes, seed, random), num_blocks, seed, seed % 3 == 0 ? 3 : 1});
        if (HasFailure()) return;
      }
}

TEST_F(CompareKernelTest, LaunchesOfThePolicyCoverAllBytes) {
  static_assert(CompareKernel::num_blocks(0, 132) == 1);
  static_assert(CompareKernel::num_blocks(kTile, 132) == 1);
  static_assert(CompareKernel::num_blocks(kTile + 1, 132) == 2);
  static_assert(CompareKernel::num_blocks(~std::uint64_t{0}, 132) ==
                132 * CompareKernel::kMinBlocksOfMultiprocessor);
  for (std::uint64_t seed = 40'000; seed < 40'030; ++seed) {
    Random random(seed);
    const std::uint64_t bytes = random.below(6 * kTile);
    const auto offset = static_cast<std::uint32_t>(random.below(300));
    run({bytes, offset, offset % 16, differences(bytes, random.next(), random),
         CompareKernel::num_blocks(bytes, 1), seed, 2});
    if (HasFailure()) return;
  }
}

TEST_F(CompareKernelTest, LaunchesAddUp) {
  const Bytes a(100, 1);
  Bytes b = a;
  b[40] = b[90] = 2;
  const std::uint64_t d_a = memory_.adopt(std::span<const std::uint8_t>(a));
  const std::uint64_t d_b = memory_.adopt(std::span<const std::uint8_t>(b));
  const std::uint64_t d_result = allocate(sizeof(Result), "result");
  const CompareKernel::Parameters all{d_a, d_b, 100, d_result};
  CompareKernel::Parameters some = all;
  some.bytes = 40;

  // The result must hold something.
  EXPECT_FALSE(launch(some, 1, {}).has_value()) << "nothing differs, so nothing is to be added";
  const auto fault = launch(all, 1, {});
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, ptxvm::FaultKind::kUninitialised) << fault->message;

  write_result(d_result, {});
  for (const auto& parameters : {some, all, all}) EXPECT_FALSE(launch(parameters, 2, {}).has_value());
  EXPECT_EQ(read_result(d_result).num_different, 4u);
  EXPECT_EQ(read_result(d_result).first_different, 40u);
}

TEST_F(CompareKernelTest, NullPointersOfNoBytes) {
  const std::uint64_t d_result = allocate(sizeof(Result), "result");
  write_result(d_result, {});
  EXPECT_FALSE(launch({0, 0, 0, d_result}, 3, {}).has_value());
  EXPECT_EQ(read_result(d_result).num_different, 0u);
  EXPECT_EQ(read_result(d_result).first_different, Result::kNone);
}

/// Zeroed memory of which only what is touched exists.
class SparseBytes {
 public:
  explicit SparseBytes(std::uint64_t bytes)
      : bytes_(bytes),
        begin_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                    0)) {}
  ~SparseBytes() {
    if (is_there()) munmap(begin_, bytes_);
  }
  SparseBytes(const SparseBytes&) = delete;
  SparseBytes& operator=(const SparseBytes&) = delete;

  bool is_there() const { return begin_ != MAP_FAILED; }
  std::span<std::uint8_t> bytes() const { return {static_cast<std::uint8_t*>(begin_), bytes_}; }

 private:
  std::uint64_t bytes_;
  void* begin_;
};

TEST_F(CompareKernelTest, OffsetsBeyond32Bits) {
  constexpr std::uint64_t kBytes = (std::uint64_t{1} << 32) + 5 * kTile / 2;
  constexpr std::uint64_t kNumTiles = kBytes / kTile + 1;
  const SparseBytes a(kBytes + 1), b(kBytes + 1);
  if (!a.is_there() || !b.is_there()) GTEST_SKIP() << "8 GiB of address space are not to be had";
  const std::uint64_t d_a = memory_.adopt(a.bytes()), d_b = memory_.adopt(b.bytes());
  const std::uint64_t d_result = allocate(sizeof(Result), "result");
  // A block a tile, of which only the last run: the interpreter would take minutes for all.
  ptxvm::LaunchOptions options;
  options.first_block = kNumTiles - 4;
  for (const std::uint64_t first :
       {(std::uint64_t{1} << 32) - 3, (std::uint64_t{1} << 32) + 1'000, kBytes - 1}) {
    SCOPED_TRACE(first);
    a.bytes()[first] = a.bytes()[kBytes - 1] = 1;
    write_result(d_result, {});
    const auto fault = launch({d_a, d_b, kBytes, d_result}, static_cast<std::uint32_t>(kNumTiles), options);
    EXPECT_FALSE(fault.has_value()) << fault->message;
    EXPECT_EQ(read_result(d_result).num_different, first == kBytes - 1 ? 1u : 2u);
    EXPECT_EQ(read_result(d_result).first_different, first);
    a.bytes()[first] = a.bytes()[kBytes - 1] = 0;
  }

  // Byte by byte, the first block's threads come back beyond 32 bits.
  constexpr std::uint32_t kNumBlocks = 1u << 18;
  constexpr std::uint64_t kOffset = (std::uint64_t{1} << 32) + 5;
  static_assert(kOffset % (std::uint64_t{kNumBlocks} * CompareKernel::kThreads) == 5);
  options.first_block = 0;
  options.num_blocks = 1;
  a.bytes()[kOffset + 1] = 1;
  write_result(d_result, {});
  const auto fault = launch({d_a + 1, d_b, kBytes, d_result}, kNumBlocks, options);
  EXPECT_FALSE(fault.has_value()) << fault->message;
  EXPECT_EQ(read_result(d_result).num_different, 1u);
  EXPECT_EQ(read_result(d_result).first_different, kOffset);
}

}  // namespace
}  // namespace weightpress::device
