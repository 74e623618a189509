// The hash of a buffer depends on its bytes alone: not on the pieces, the threads or their order.
#include "job/block_hash.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>
#include <xxhash.h>

#include "support/weights.h"

namespace weightpress::job {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kBlock = kTransferPieceBytes;
const std::vector<std::uint64_t> kSizes = {0,
                                           1,
                                           2,
                                           7,
                                           240,
                                           241,
                                           1'000,
                                           kBlock - 1,
                                           kBlock,
                                           kBlock + 1,
                                           2 * kBlock - 1,
                                           2 * kBlock,
                                           2 * kBlock + 1,
                                           5 * kBlock + 12'345};

Bytes content(std::uint64_t size, std::uint64_t seed) {
  testing::Random random(seed);
  Bytes bytes(size);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
  return bytes;
}

/// As the header file says it.
std::uint64_t plain_hash(const Bytes& bytes) {
  std::vector<XXH64_hash_t> blocks;
  for (std::uint64_t begin = 0; begin < bytes.size(); begin += kBlock)
    blocks.push_back(XXH3_64bits(bytes.data() + begin, std::min(kBlock, bytes.size() - begin)));
  return XXH3_64bits(blocks.data(), blocks.size() * sizeof(XXH64_hash_t));
}

void add_range(BlockHash& hash, const Bytes& bytes, std::uint64_t first, std::uint64_t end, int threads) {
  transfer_on_grid(first, end, threads, [&](std::uint64_t offset, std::uint64_t count) {
    hash.add(offset, bytes.data() + offset, count);
  });
}

TEST(BlockHash, OfWholeBuffersIsThePlainOne) {
  for (const std::uint64_t size : kSizes) {
    const Bytes bytes = content(size, size);
    for (const int threads : {1, 2, 7}) {
      BlockHash hash(size);
      add_range(hash, bytes, 0, size, threads);
      EXPECT_EQ(hash.digest(), plain_hash(bytes)) << size << " bytes, " << threads << " threads";
    }
  }
}

TEST(BlockHash, DoesNotDependOnThePieces) {
  testing::Random random(11);
  for (const std::uint64_t size : kSizes) {
    const Bytes bytes = content(size, size);
    for (int round = 0; round < 20; ++round) {
      BlockHash hash(size);
      const std::uint64_t longest = 1 + random.below(round % 2 == 0 ? size / 3 + 1 : size + 1);
      for (std::uint64_t done = 0; done < size;) {
        const std::uint64_t end = std::min(size, done + 1 + random.below(longest));
        add_range(hash, bytes, done, end, 1 + static_cast<int>(random.below(4)));
        if (random.below(4) == 0) hash.add(end, nullptr, 0);  // an empty piece
        done = end;
      }
      ASSERT_EQ(hash.digest(), plain_hash(bytes)) << size << " bytes, round " << round;
    }
  }
}

TEST(BlockHash, ByteByByte) {
  const Bytes bytes = content(kBlock + 3, 1);
  BlockHash hash(bytes.size());
  for (std::uint64_t i = 0; i < bytes.size(); ++i) hash.add(i, &bytes[i], 1);
  EXPECT_EQ(hash.digest(), plain_hash(bytes));
}

TEST(BlockHash, BlocksInAnyOrderPiecesInTheirs) {
  testing::Random random(12);
  const Bytes bytes = content(6 * kBlock + 17, 2);
  for (int round = 0; round < 20; ++round) {
    BlockHash hash(bytes.size());
    std::vector<std::uint64_t> done(7, 0);
    for (std::uint64_t open = 7; open != 0;) {
      const std::uint64_t block = random.below(7);
      const std::uint64_t size = std::min(kBlock, bytes.size() - block * kBlock);
      if (done[block] == size) continue;
      const std::uint64_t count = std::min(size - done[block], 1 + random.below(kBlock));
      const std::uint64_t offset = block * kBlock + done[block];
      hash.add(offset, bytes.data() + offset, count);
      done[block] += count;
      if (done[block] == size) --open;
    }
    ASSERT_EQ(hash.digest(), plain_hash(bytes));
  }
}

TEST(BlockHash, ManyThreadsAtOnce) {
  const Bytes bytes = content(24 * kBlock + 1'000, 3);
  for (int round = 0; round < 5; ++round) {
    BlockHash hash(bytes.size());
    std::atomic<std::uint64_t> next = 0;
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&] {
          for (std::uint64_t block = next++; block < 25; block = next++) {
            const std::uint64_t end = std::min<std::uint64_t>((block + 1) * kBlock, bytes.size());
            for (std::uint64_t done = block * kBlock; done < end;) {
              const std::uint64_t count = std::min<std::uint64_t>(end - done, 60'000);
              hash.add(done, bytes.data() + done, count);
              done += count;
            }
          }
        });
      }
    }
    ASSERT_EQ(hash.digest(), plain_hash(bytes));
  }
}

TEST(BlockHash, EveryBitCounts) {
  testing::Random random(13);
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{65}, 2 * kBlock + 5}) {
    Bytes bytes = content(size, 4);
    const auto hash_of = [&] {
      BlockHash hash(size);
      add_range(hash, bytes, 0, size, 1);
      return hash.digest();
    };
    const std::uint64_t right = hash_of();
    for (int round = 0; round < 200; ++round) {
      std::uint64_t byte = random.below(size);
      if (round == 0) byte = 0;
      if (round == 1) byte = size - 1;
      if (round == 2) byte = std::min(kBlock, size - 1);
      const auto bit = static_cast<std::uint8_t>(1u << random.below(8));
      bytes[byte] = static_cast<std::uint8_t>(bytes[byte] ^ bit);
      EXPECT_NE(hash_of(), right) << "byte " << byte << " of " << size;
      bytes[byte] = static_cast<std::uint8_t>(bytes[byte] ^ bit);
    }
    EXPECT_EQ(hash_of(), right);
  }
}

TEST(BlockHash, LengthsOfZerosDiffer) {
  std::vector<std::uint64_t> digests;
  for (const std::uint64_t size : kSizes) {
    const Bytes bytes(size, 0);
    BlockHash hash(size);
    add_range(hash, bytes, 0, size, 1);
    digests.push_back(hash.digest());
  }
  std::ranges::sort(digests);
  EXPECT_EQ(std::ranges::adjacent_find(digests), digests.end());
}

TEST(BlockHash, MovesInBetween) {
  const Bytes bytes = content(2 * kBlock, 5);
  std::vector<BlockHash> hashes;
  hashes.emplace_back(bytes.size());
  hashes[0].add(0, bytes.data(), 100);
  hashes[0].add(kBlock, bytes.data() + kBlock, kBlock - 1);
  BlockHash moved = std::move(hashes[0]);
  moved.add(100, bytes.data() + 100, kBlock - 100);
  moved.add(2 * kBlock - 1, &bytes[2 * kBlock - 1], 1);
  EXPECT_EQ(moved.digest(), plain_hash(bytes));
}

TEST(Xxh3, IsTheLibrarys) {
  const Bytes bytes = content(3'000, 6);
  const std::string text(bytes.begin(), bytes.end());
  for (std::size_t size = 0; size <= text.size(); size += size < 300 ? 1 : 97) {
    const std::string_view part = std::string_view(text).substr(0, size);
    EXPECT_EQ(xxh3(part), XXH3_64bits(part.data(), part.size()));
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}})
      EXPECT_EQ(xxh3(part, seed), XXH3_64bits_withSeed(part.data(), part.size(), seed));
  }
  const std::vector<std::uint64_t> values = {1, ~std::uint64_t{0}, 0};
  EXPECT_EQ(xxh3_of(values), XXH3_64bits(values.data(), 24));
  EXPECT_EQ(xxh3_of({}), XXH3_64bits(nullptr, 0));
  // Pinned: journals of one version are read on other machines too.
  EXPECT_EQ(hex16(xxh3("")), "2d06800538d394c2");
}

TEST(Hex16, HasSixteenLowerCaseDigits) {
  EXPECT_EQ(hex16(0), "0000000000000000");
  EXPECT_EQ(hex16(0xABC), "0000000000000abc");
  EXPECT_EQ(hex16(~std::uint64_t{0}), "ffffffffffffffff");
}

}  // namespace
}  // namespace weightpress::job
