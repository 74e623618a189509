#include "model/tensor_hashes.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "model/safetensors_header.h"
#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;

const std::string kZeros(64, '0');
const std::string kHashA = hex_of(sha256("a")), kHashB = hex_of(sha256("b")), kHashH = hex_of(sha256("h"));

std::vector<std::string_view> views(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

// The message, or "none" or "whole".
std::string judge(const std::string& metadata_json, const std::vector<std::string>& names = {"a", "b"}) {
  const auto hashes = parse_stored_hashes(metadata_json, views(names), "x.safetensors");
  if (!hashes) {
    EXPECT_EQ(hashes.error().code, ErrorCode::kCorruptFile);
    EXPECT_THAT(hashes.error().message, StartsWith("x.safetensors: "));
    return hashes.error().message;
  }
  return *hashes ? "whole" : "none";
}

std::string member(const std::string& key, const std::string& value) {
  return "\"" + key + "\":\"" + value + "\"";
}

TEST(ReserveHashes, KeysStandInTheOrderOfTheNamesAndTheHeadersIsTheLast) {
  const std::vector<std::string> names = {"b", "a"};
  const ReservedHashes reserved = reserve_hashes(R"({"format":"pt"})", views(names));
  EXPECT_EQ(reserved.metadata_json, R"({"format":"pt",)" + member("sha256:b", kZeros) + "," +
                                        member("sha256:a", kZeros) + "," + member("sha256", kZeros) + "}");
  EXPECT_THAT(reserved.tensor_offsets, ElementsAre(27, 105));
  EXPECT_EQ(reserved.header_offset, 181u);
  for (const std::uint64_t offset : {27, 105, 181})
    EXPECT_EQ(reserved.metadata_json.substr(offset - 1, 66), "\"" + kZeros + "\"");
}

TEST(ReserveHashes, WithoutOtherMetadataAndWithoutTensors) {
  const std::vector<std::string> names = {"a"};
  EXPECT_EQ(reserve_hashes({}, views(names)).metadata_json,
            "{" + member("sha256:a", kZeros) + "," + member("sha256", kZeros) + "}");
  EXPECT_EQ(reserve_hashes("{}", {}).metadata_json, "{" + member("sha256", kZeros) + "}");
  EXPECT_EQ(reserve_hashes({}, {}).metadata_json, "{" + member("sha256", kZeros) + "}");
}

TEST(ReserveHashes, AMemberTakesAsMuchAsIsSaid) {
  const std::vector<std::string> none, one = {"layer.0.weight"};
  EXPECT_EQ(reserve_hashes({}, views(one)).metadata_json.size() -
                reserve_hashes({}, views(none)).metadata_json.size(),
            hash_member_bytes(one[0]));
}

TEST(StoredHashes, WhatIsReservedAndFilledInIsReadBack) {
  const std::vector<std::string> names = {"sha256",
                                          "sha256:a",
                                          "a",
                                          ":",
                                          "",
                                          "q\"u\\o/t",
                                          "\b\f\n\r\t\x01\x1f\x7f\0"s,
                                          "\\u0061,",
                                          "\xe6\x97",
                                          "\":\"",
                                          "\\",
                                          "\xf0\x9f\x98\x80"};
  ReservedHashes reserved = reserve_hashes(R"({"format":"p\"t","note":"\"sha256:a\":\"0\""})", views(names));
  for (std::size_t i = 0; i < names.size(); ++i)
    reserved.metadata_json.replace(reserved.tensor_offsets[i], 64, hex_of(sha256(names[i] + "'s data")));
  reserved.metadata_json.replace(reserved.header_offset, 64, kHashH);

  std::vector<std::string> others(names.rbegin(), names.rend());
  const auto hashes = parse_stored_hashes(reserved.metadata_json, views(others), "x.safetensors");
  ASSERT_TRUE(hashes) << hashes.error().message;
  ASSERT_TRUE(*hashes);
  for (std::size_t i = 0; i < others.size(); ++i)
    EXPECT_EQ((*hashes)->tensors[i], sha256(others[i] + "'s data")) << others[i];
  EXPECT_EQ((*hashes)->header, sha256("h"));
  std::vector<std::uint64_t> offsets = reserved.tensor_offsets;
  offsets.push_back(reserved.header_offset);
  EXPECT_EQ((*hashes)->offsets, offsets);
}

TEST(StoredHashes, FilesWithoutAnyHaveNone) {
  for (const char* metadata :
       {"", "{}", R"({"format":"pt"})", R"({"SHA256":"x","sha25":"x","sha2567":"","sha-256:a":"x"})",
        R"({"a":"\"sha256\":\"","b\"sha256":"\\","c":"sha256:a"})"}) {
    EXPECT_EQ(judge(metadata), "none") << metadata;
    EXPECT_FALSE(has_stored_hashes(metadata)) << metadata;
  }
  for (const char* metadata :
       {R"({"sha256":""})", R"({"a":"\\","sha256:":"x"})", R"({"\\":"","sha256:\"":""})"})
    EXPECT_TRUE(has_stored_hashes(metadata)) << metadata;
}

TEST(StoredHashes, MustBeWhole) {
  const std::string a = member("sha256:a", kHashA), b = member("sha256:b", kHashB),
                    header = member("sha256", kHashH);
  EXPECT_EQ(judge("{" + a + "," + b + "," + header + "}"), "whole");
  EXPECT_EQ(judge("{" + header + R"(,"x":"y",)" + b + "," + a + "}"), "whole");
  EXPECT_EQ(judge("{" + header + "}", {}), "whole");

  EXPECT_THAT(judge("{" + a + "," + b + "}"), HasSubstr("its header has no hash"));
  EXPECT_THAT(judge("{" + a + "," + header + "}"), HasSubstr("tensor 'b' has no hash"));
  EXPECT_THAT(judge("{" + header + "}"), HasSubstr("'sha256:a' is missing"));
  EXPECT_THAT(judge("{" + a + "," + b + "," + header + "}", {"a"}),
              HasSubstr("'sha256:b', but it holds no such"));
  EXPECT_THAT(judge("{" + a + "," + b + "," + header + "}", {}),
              HasSubstr("'sha256:a', but it holds no such"));
  // Case and spaces count.
  EXPECT_THAT(judge("{" + member("sha256:A", kHashA) + "," + b + "," + header + "}"),
              HasSubstr("tensor 'a' has no hash"));
  EXPECT_THAT(judge("{" + member("sha256: a", kHashA) + "," + b + "," + header + "}"),
              HasSubstr("tensor 'a' has no hash"));
}

TEST(StoredHashes, ValuesMustBeHashes) {
  std::string upper = kHashA;
  upper[5] = 'A';
  for (const std::string& value : {""s, "0"s, kHashA.substr(1), kHashA + "0", upper, "sha256:" + kHashA,
                                   kHashA.substr(0, 62) + "\\\\", "\\\"" + kHashA.substr(2), "\xc3\xa9"s}) {
    EXPECT_THAT(judge("{" + member("sha256:a", value) + "," + member("sha256", kHashH) + "}", {"a"}),
                HasSubstr("the value of 'sha256:a' in its __metadata__ is no SHA-256"))
        << value;
    EXPECT_THAT(judge("{" + member("sha256:a", kHashA) + "," + member("sha256", value) + "}", {"a"}),
                HasSubstr("the value of 'sha256' in its __metadata__ is no SHA-256"))
        << value;
  }
}

TEST(StoredHashes, MessagesNameTensorsAndHoldNothingRaw) {
  const std::string header = member("sha256", kHashH);
  const auto missing =
      parse_stored_hashes("{" + header + "}", std::vector<std::string_view>{"a\x1b\n"}, "x\n");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().tensor, "a\x1b\n");
  for (const std::string& message :
       {missing.error().message, judge("{" + member("sha256:\xe2\x80\xae", "") + "}", {}),
        judge("{" + member("sha256:\xe2\x80\xae", kHashA) + "," + header + "}", {})}) {
    EXPECT_EQ(message.find_first_of("\x1b\n\xe2"), message.npos) << message;
  }
}

// ---- header hashes

// A file of one tensor "a" with hashes; the header is longer than a piece if `note` is.
struct HashedFile {
  explicit HashedFile(const std::string& note = "0000") {
    const std::vector<TensorSpec> specs = {{"a", Dtype::kU8, {3}}, {kZeros, Dtype::kU8, {0}}};
    const std::vector<std::string> names = {kZeros, "a"};
    const ReservedHashes reserved = reserve_hashes("{" + member("note", note) + "}", views(names));
    tensor_offsets = reserved.tensor_offsets;
    const auto layout = plan_safetensors_layout(specs, reserved.metadata_json);
    bytes = layout.value().header;
    const Sha256Digest header = sha256(std::string_view(bytes).substr(8));
    set(reserved.tensor_offsets[0], sha256(""));
    set(reserved.tensor_offsets[1], sha256("abc"));
    set(reserved.header_offset, header);
    bytes += "abc";
  }

  void set(std::uint64_t offset, const Sha256Digest& digest) {
    bytes.replace(kMetadataOffset + offset, 64, hex_of(digest));
  }

  std::string bytes;
  std::vector<std::uint64_t> tensor_offsets;  // in the metadata
};

// Whether the file is read and its header has its hash. The message of what is wrong goes to `message`.
enum class Outcome : std::uint8_t { kUnreadable, kHolds, kFails };

Outcome check(const TempFolder& folder, const std::string& bytes, std::string* message = nullptr) {
  const File file = File::open_readonly(folder.write("x.safetensors", bytes));
  const auto header = try_read_safetensors_header(file);
  if (!header) return Outcome::kUnreadable;
  std::vector<std::string_view> names;
  for (const TensorEntry& tensor : header->tensors) names.push_back(tensor.name);
  const auto hashes = parse_stored_hashes(header->metadata_json, names, "x.safetensors");
  if (!hashes || !*hashes) return Outcome::kUnreadable;
  const auto result = check_header_hash(file, header->metadata_json, **hashes);
  if (result) return Outcome::kHolds;
  EXPECT_EQ(result.error().code, ErrorCode::kCorruptFile);
  if (message != nullptr) *message = result.error().message;
  return Outcome::kFails;
}

TEST(HeaderHash, HoldsInHeadersOfAnyLength) {
  const TempFolder folder;
  for (const std::size_t size : {0u, 4u, 64u, 65'000u, 65'536u, 200'000u})
    EXPECT_EQ(check(folder, HashedFile(std::string(size, '0')).bytes), Outcome::kHolds) << size;
}

TEST(HeaderHash, EveryByteOfTheHeaderCounts) {
  const TempFolder folder;
  const HashedFile file(std::string(100, '0'));
  const std::string& sound = file.bytes;
  const std::size_t header_end = sound.size() - 3;
  std::size_t num_failed = 0;
  for (std::size_t at = 8; at < header_end; ++at) {
    std::string bytes = sound;
    bytes[at] ^= 1;
    const Outcome outcome = check(folder, bytes);
    num_failed += outcome == Outcome::kFails;
    // A tensor's hash is compared with the tensor; the header's hash does not cover it.
    const bool in_tensor_hash = std::ranges::any_of(file.tensor_offsets, [&](std::uint64_t offset) {
      return at >= kMetadataOffset + offset && at < kMetadataOffset + offset + 64;
    });
    if (!in_tensor_hash) {
      EXPECT_NE(outcome, Outcome::kHolds) << "byte " << at << " of " << sound;
    }
  }
  EXPECT_GT(num_failed, 100u);
}

TEST(HeaderHash, AnotherSpellingOfTheSameHeaderFails) {
  const TempFolder folder;
  const std::string sound = HashedFile().bytes.substr(8);
  const std::string json = sound.substr(0, sound.size() - 3);
  std::string message;
  const auto outcome_of = [&](std::string text) {
    return check(folder, with_length(text) + "abc", &message);
  };
  EXPECT_EQ(outcome_of(json), Outcome::kHolds);
  EXPECT_EQ(outcome_of(json + "        "), Outcome::kFails);
  EXPECT_THAT(message, HasSubstr("x.safetensors: its header is not what it was"));
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string text = json;
    text.replace(text.find(what), what.size(), by);
    return text;
  };
  EXPECT_EQ(outcome_of(replaced("{\"__metadata__\"", "{ \"__metadata__\"")), Outcome::kFails);
  EXPECT_EQ(outcome_of(replaced("__metadata__", "\\u005f_metadata__")), Outcome::kFails);
  EXPECT_EQ(outcome_of(replaced("\"note\"", "\"n\\u006fte\"")), Outcome::kFails);
  EXPECT_EQ(outcome_of(replaced("\"note\"", " \"note\"")), Outcome::kFails);
  EXPECT_EQ(outcome_of(replaced("\"data_offsets\"", " \"data_offsets\"")), Outcome::kFails);
  EXPECT_EQ(outcome_of(replaced("sha256:a\":\"b", "sha256:a\":\"\\u0062")), Outcome::kFails);
}

TEST(HeaderHash, MetadataThatIsNotTheFirstMemberFails) {
  const TempFolder folder;
  const std::string hash_of_data = hex_of(sha256("abc"));
  const auto text = [&](const std::string& tensor_hash, const std::string& header_hash) {
    return R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"__metadata__":{)" +
           member("sha256:a", tensor_hash) + "," + member("sha256", header_hash) + "}}";
  };
  const std::string json = text(hash_of_data, hex_of(sha256(text(kZeros, kZeros))));
  EXPECT_EQ(check(folder, with_length(json) + "abc"), Outcome::kFails);
}

}  // namespace
}  // namespace weightpress::model
