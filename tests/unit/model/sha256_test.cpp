// The expected digests are the examples of FIPS 180-2 and NIST's collection of example values for it.
#include "model/sha256.h"

#include <string>

#include <gtest/gtest.h>

namespace weightpress::model {
namespace {

const std::string kTwoBlocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";

TEST(Sha256, PublishedExamples) {
  EXPECT_EQ(hex_of(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(sha256(kTwoBlocks)), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                          "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu")),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hex_of(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex_of(sha256(std::string(1, '\xBD'))),
            "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
}

TEST(Sha256, PiecesOfAnySizeMakeTheSameHash) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  const Sha256Digest whole = sha256(text);
  Sha256 hash;
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    hash.update(std::string_view());
    for (std::size_t at = 0; at < text.size(); at += piece)
      hash.update(std::string_view(text).substr(at, piece));
    EXPECT_EQ(hash.finish(), whole) << "pieces of " << piece;
  }
}

TEST(Sha256, FinishBeginsAnotherMessage) {
  Sha256 hash;
  EXPECT_EQ(hash.finish(), sha256(""));
  hash.update(kTwoBlocks);
  EXPECT_EQ(hash.finish(), sha256(kTwoBlocks));
  EXPECT_EQ(hash.finish(), sha256(""));
}

TEST(Sha256, HexIsReadBackAndNothingElse) {
  const std::string hex = "0123456789abcdef00112233445566778899aabbccddeeff0f1e2d3c4b5a6978";
  const auto digest = parse_sha256_hex(hex);
  ASSERT_TRUE(digest);
  EXPECT_EQ((*digest)[1], 0x23);
  EXPECT_EQ(hex_of(*digest), hex);
  for (const char wrong : {'A', 'F', 'g', '/', ':', '`', ' ', '\0', '\xff'}) {
    for (const std::size_t at : {0, 1, 62, 63}) {
      std::string other = hex;
      other[at] = wrong;
      EXPECT_FALSE(parse_sha256_hex(other)) << other;
    }
  }
  for (const auto& other : {std::string(), hex.substr(1), hex + "0", "0x" + hex.substr(2)})
    EXPECT_FALSE(parse_sha256_hex(other)) << other;
}

}  // namespace
}  // namespace weightpress::model
