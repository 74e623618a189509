#include "model/safetensors_header.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::string_literals;

Result<SafetensorsHeader> parse(std::string_view json, std::uint64_t data_bytes) {
  return parse_safetensors_header(json, data_bytes, "m.safetensors");
}

std::string failure(std::string_view json, std::uint64_t data_bytes = 4) {
  const auto header = parse(json, data_bytes);
  if (header) return "accepted: " + std::string(json);
  EXPECT_EQ(header.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(header.error().message, testing::StartsWith("m.safetensors: "));
  return header.error().message;
}

// A header of one tensor 'a' with these fields.
std::string entry(std::string_view fields) {
  return "{\"a\":{" + std::string(fields) + "}}";
}
constexpr std::string_view kGood = R"("dtype":"BF16","shape":[2],"data_offsets":[0,4])";

TEST(SafetensorsHeader, ReadsTensorsInDataOrderAndMetadata) {
  const auto header = parse(
      R"({"b":{"shape":[2,3],"data_offsets":[4,10],"dtype":"U8"},"__metadata__":{"format":"pt","x":""},)"
      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
      10);
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dtype, Dtype::kBf16);
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_EQ(header->tensors[1].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(header->tensors[1].begin_bytes, 4u);
  EXPECT_EQ(header->tensors[1].end_bytes, 10u);
  EXPECT_EQ(header->tensors[1].num_elements(), 6u);
  EXPECT_EQ(header->metadata_json, R"({"format":"pt","x":""})");
  EXPECT_EQ(header->data_offset, 8u + 148u);
}

TEST(SafetensorsHeader, LegalOddities) {
  EXPECT_TRUE(parse("{}", 0));
  EXPECT_TRUE(parse("\n{ }\r\n\t ", 0));
  EXPECT_TRUE(parse("{\n  \"a\" : {\n \"dtype\":\"U8\",\n\"shape\":[\n],\"data_offsets\":[0,\n1]}\n}\n", 1));
  const auto null_metadata = parse(R"({"__metadata__":null})", 0);  // as the package takes it
  ASSERT_TRUE(null_metadata);
  EXPECT_EQ(null_metadata->metadata_json, "");
  EXPECT_TRUE(parse(
      "{\"" + std::string(kMaxNameBytes, 'a') + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0));
  EXPECT_THAT(failure("{\"" + std::string(kMaxNameBytes + 1, 'a') +
                          R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                      0),
              HasSubstr("4097 bytes"));
  const auto empty_metadata = parse(R"({"__metadata__":{}})", 0);
  ASSERT_TRUE(empty_metadata);
  EXPECT_EQ(empty_metadata->metadata_json, "{}");
  // A scalar, and tensors without data at the start, between and at the end.
  const auto header = parse(
      R"({"z":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("y":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
      4);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].name, "y");
  EXPECT_EQ(header->tensors[1].name, "s");
  EXPECT_EQ(header->tensors[1].num_elements(), 1u);
  EXPECT_EQ(header->tensors[2].num_elements(), 0u);
  const auto empty = parse(
      R"({"z":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
      0);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->tensors[0].name, "z");
  EXPECT_EQ(empty->tensors[1].name, "");
  // Keys that other writers may add to an entry.
  EXPECT_TRUE(parse(entry(std::string(kGood) + R"(,"x":{"y":[[1,{"z":null}],-1.5,true]},"w":"v")"), 4));
}

TEST(SafetensorsHeader, EveryDtypeIsRead) {
  for (unsigned i = 0; i < kNumDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    const unsigned size_bytes = dtype_bits(dtype);  // of eight elements
    const auto header =
        parse(entry("\"dtype\":\"" + std::string(dtype_name(dtype)) +
                    "\",\"shape\":[8],\"data_offsets\":[0," + std::to_string(size_bytes) + "]"),
              size_bytes);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->tensors[0].dtype, dtype);
  }
}

TEST(SafetensorsHeader, EachFieldWrongInTurn) {
  ASSERT_TRUE(parse(entry(kGood), 4));
  const auto field = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return failure(entry("\"dtype\":" + std::string(dtype) + ",\"shape\":" + std::string(shape) +
                         ",\"data_offsets\":" + std::string(offsets)));
  };
  EXPECT_THAT(field("\"BF17\"", "[2]", "[0,4]"),
              AllOf(HasSubstr("tensor 'a'"), HasSubstr("unknown dtype 'BF17'")));
  for (const char* value : {"1", "null", "[]", "{}", "true", "1.5"})
    EXPECT_THAT(field(value, "[2]", "[0,4]"), HasSubstr("tensor 'a': dtype must be a string"));
  for (const char* value : {"2", "null", "\"2\"", "{}", "[-2]", "[2.0]", "[\"2\"]", "[[2]]", "[null]",
                            "[1e3]", "[-0]", "[18446744073709551616]"})
    EXPECT_THAT(field("\"BF16\"", value, "[0,4]"),
                HasSubstr("tensor 'a': shape must be a list of non-negative"));
  for (const char* value : {"4", "null", "\"0,4\"", "{}", "[0,-4]", "[0.0,4]", "[0,[4]]"})
    EXPECT_THAT(field("\"BF16\"", "[2]", value),
                HasSubstr("tensor 'a': data_offsets must be a list of non-negative"));
  for (const char* value : {"[]", "[0]", "[0,4,4]"})
    EXPECT_THAT(field("\"BF16\"", "[2]", value), HasSubstr("tensor 'a': data_offsets must be two numbers"));
  EXPECT_THAT(field("\"BF16\"", "[2]", "[4,0]"), HasSubstr("end before they begin"));
  EXPECT_THAT(field("\"BF16\"", "[3]", "[0,4]"), HasSubstr("span 4 bytes, but 3 elements of BF16 take 6"));
  EXPECT_THAT(field("\"BF16\"", "[3]", "[0,6]"), AllOf(HasSubstr("out of range"), HasSubstr("only 4 bytes")));
  EXPECT_THAT(field("\"BF16\"", "[]", "[0,4]"), HasSubstr("1 elements of BF16 take 2"));
  EXPECT_THAT(field("\"F4\"", "[7]", "[0,4]"), HasSubstr("not a whole number of bytes"));
  EXPECT_THAT(field("\"F6_E2M3\"", "[5]", "[0,4]"), HasSubstr("not a whole number of bytes"));
  EXPECT_THAT(field("\"BF16\"", "[4294967296,4294967296]", "[0,4]"), HasSubstr("overflows"));
  EXPECT_THAT(field("\"BF16\"", "[9223372036854775810]", "[0,4]"), HasSubstr("overflows"));
  EXPECT_THAT(field("\"F4\"", "[18446744073709551615]", "[0,4]"), HasSubstr("overflows"));
  // Each number at the ends of its range, alone, as a product and beyond.
  for (const char* shape : {"[9223372036854775808]", "[18446744073709551615]", "[9223372036854775808,2]",
                            "[18446744073709551615,18446744073709551615]", "[4294967296,4294967297]",
                            "[2,9223372036854775807,3]"})
    EXPECT_THAT(field("\"BF16\"", shape, "[0,4]"), HasSubstr("overflows")) << shape;
  // 2^58 elements of 8 bytes are 2^61 bytes, less than 64 bits of bits.
  EXPECT_THAT(field("\"F64\"", "[288230376151711743]", "[0,4]"), HasSubstr("take 2305843009213693944"));
  EXPECT_THAT(field("\"F64\"", "[288230376151711744]", "[0,4]"), HasSubstr("overflows"));
  for (const char* offsets :
       {"[0,9223372036854775807]", "[0,9223372036854775808]", "[0,18446744073709551615]",
        "[18446744073709551615,18446744073709551615]", "[5,5]"})
    EXPECT_THAT(field("\"BF16\"", "[2]", offsets), HasSubstr("out of range")) << offsets;
  EXPECT_THAT(field("\"BF16\"", "[2]", "[18446744073709551615,4]"), HasSubstr("end before they begin"));
  EXPECT_THAT(field("\"BF16\"", "[2]", "[0,18446744073709551616]"), HasSubstr("list of non-negative"));
}

TEST(SafetensorsHeader, DimensionsUpTo64) {
  const auto with_dimensions = [](unsigned count) {
    std::string shape = "1";
    for (unsigned i = 1; i < count; ++i) shape += ",1";
    return entry(R"("dtype":"U8","data_offsets":[0,1],"shape":[)" + shape + "]");
  };
  const auto header = parse(with_dimensions(64), 1);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].shape, std::vector<std::uint64_t>(64, 1));
  EXPECT_THAT(failure(with_dimensions(65), 1), HasSubstr("too many dimensions (more than 64)"));
}

// Many tensors in an order of their own, tensors without data among them.
TEST(SafetensorsHeader, AnyOrderBecomesDataOrder) {
  std::mt19937 random(1);
  for (unsigned count = 1; count < 40; ++count) {
    std::vector<unsigned> places(count);
    std::iota(places.begin(), places.end(), 0u);
    std::ranges::shuffle(places, random);
    std::string json = "{";
    for (const unsigned place : places) {
      const std::string n = std::to_string(place);
      json += "\"e" + n + R"(":{"dtype":"U8","shape":[0],"data_offsets":[)" + n + "," + n + "]},";
      json += "\"t" + n + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + n + "," +
              std::to_string(place + 1) + "]},";
    }
    json.back() = '}';
    const auto header = parse(json, count);
    ASSERT_TRUE(header) << header.error().message;
    ASSERT_EQ(header->tensors.size(), 2 * count);
    for (unsigned i = 0; i < count; ++i) {
      EXPECT_EQ(header->tensors[2 * i].name, "e" + std::to_string(i));
      EXPECT_EQ(header->tensors[2 * i + 1].name, "t" + std::to_string(i));
      EXPECT_EQ(header->tensors[2 * i + 1].begin_bytes, i);
      EXPECT_EQ(header->tensors[2 * i + 1].shape, (std::vector<std::uint64_t>{1}));
    }
  }
}

TEST(SafetensorsHeader, MetadataIsKeptAsCompactJson) {
  const auto metadata = [](std::string_view json) {
    const auto header = parse("{\"__metadata__\":" + std::string(json) + "}", 0);
    return header ? header->metadata_json : header.error().message;
  };
  EXPECT_EQ(metadata("{ \"b\" : \"2\" ,\n\t\"a\" : \"1 \" }"), R"({"b":"2","a":"1 "})");
  EXPECT_EQ(metadata(R"({"\u0061\/\u00e9\ud83d\ude00":"\u0000\u001f\u007f\"\\\n"})"),
            "{\"a/\u00E9\U0001F600\":\"\\u0000\\u001f\x7f\\\"\\\\\\n\"}");
  EXPECT_EQ(metadata(R"({"":""})"), R"({"":""})");
  // Keys that only look alike are none twice.
  EXPECT_EQ(metadata(R"({"\\n":"","\n":"","n":""})"), R"({"\\n":"","\n":"","n":""})");
}

TEST(SafetensorsHeader, MissingAndDuplicateFields) {
  EXPECT_THAT(failure(entry(R"("shape":[2],"data_offsets":[0,4])")), HasSubstr("tensor 'a': has no dtype"));
  EXPECT_THAT(failure(entry(R"("dtype":"BF16","data_offsets":[0,4])")),
              HasSubstr("tensor 'a': has no shape"));
  EXPECT_THAT(failure(entry(R"("dtype":"BF16","shape":[2])")), HasSubstr("tensor 'a': has no data_offsets"));
  for (const char* twice : {R"(,"dtype":"BF16")", R"(,"shape":[2])", R"(,"data_offsets":[0,4])"})
    EXPECT_THAT(failure(entry(std::string(kGood) + twice)), HasSubstr("duplicate key"));
}

TEST(SafetensorsHeader, DuplicateNamesAreCalledSoWhateverTheirOffsets) {
  const std::string good(kGood);
  for (const char* second : {R"("dtype":"BF16","shape":[2],"data_offsets":[0,4])",
                             R"("dtype":"BF16","shape":[2],"data_offsets":[4,8])",
                             R"("dtype":"BF16","shape":[2],"data_offsets":[1000,1004])"}) {
    const auto header = parse("{\"a\":{" + good + "},\"\\u0061\":{" + second + "}}", 8);
    ASSERT_FALSE(header);
    EXPECT_THAT(header.error().message, AllOf(HasSubstr("tensor 'a'"), HasSubstr("duplicate")));
    EXPECT_EQ(header.error().tensor, "a");
  }
  EXPECT_THAT(failure(R"({"__metadata__":{"k":"1","k":"2"}})", 0),
              HasSubstr("duplicate key 'k' in __metadata__"));
  // Spelled otherwise, with others between, and named as it is.
  EXPECT_THAT(failure(R"({"__metadata__":{"x":"","\n\u0041":"1","b":"","\u000aA":"1"}})", 0),
              HasSubstr("duplicate key '\\x0aA' in __metadata__"));
  EXPECT_THAT(failure(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("duplicate __metadata__"));
  EXPECT_THAT(failure(R"({"__metadata__":null,"__metadata__":{}})", 0), HasSubstr("duplicate __metadata__"));
}

TEST(SafetensorsHeader, MetadataHoldsStringsOnly) {
  for (const char* value : {"1", "\"pt\"", "[]", "true"})
    EXPECT_THAT(failure("{\"__metadata__\":"s + value + "}", 0),
                HasSubstr("__metadata__ must be an object of strings"));
  for (const char* value : {"1", "null", "{}", "[]", "true"})
    EXPECT_THAT(failure("{\"__metadata__\":{\"k\":"s + value + "}}", 0),
                HasSubstr("the value of 'k' must be a string"));
}

TEST(SafetensorsHeader, OverlapsHolesAndTrailingBytes) {
  const auto two = [](std::string_view a, std::string_view b, std::uint64_t data_bytes) {
    return failure("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + std::string(a) +
                       "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + std::string(b) + "}}",
                   data_bytes);
  };
  EXPECT_THAT(two("[0,4]", "[3,7]", 8),
              AllOf(HasSubstr("tensor 'b'"), HasSubstr("overlap"), HasSubstr("'a'")));
  EXPECT_THAT(two("[0,4]", "[0,4]", 4), HasSubstr("overlap"));
  EXPECT_THAT(two("[5,9]", "[0,4]", 9), AllOf(HasSubstr("tensor 'a'"), HasSubstr("hole of 1 bytes")));
  EXPECT_THAT(two("[1,5]", "[5,9]", 9), AllOf(HasSubstr("tensor 'a'"), HasSubstr("hole of 1 bytes")));
  EXPECT_THAT(two("[0,4]", "[4,8]", 72), HasSubstr("64 trailing bytes"));
  EXPECT_THAT(failure("{}", 7), HasSubstr("7 trailing bytes"));
}

TEST(SafetensorsHeader, WhatIsNotAHeaderAtAll) {
  for (const char* text : {"[]", "1", "\"a\"", "null", "true", "-1", "1.5"})
    EXPECT_THAT(failure(text, 0), HasSubstr("not a JSON object"));
  for (const char* text :
       {"", " ", "{", "{}}", "{} x", "{\"a\"}", "{'a':1}", "{\"__metadata__\":{}", "{,}", "{}//c", "{}/**/"})
    EXPECT_THAT(failure(text, 0), HasSubstr("not valid JSON"));
  for (const char* text : {"{\"a\":1}", "{\"a\":[]}", "{\"a\":\"b\"}", "{\"a\":null}"})
    EXPECT_THAT(failure(text, 0), HasSubstr("tensor 'a': must be an object"));
  EXPECT_THAT(failure("{\"a\":{}}", 0), HasSubstr("has no dtype"));
  EXPECT_THAT(failure("{\"\xFF\":{}}", 0), HasSubstr("UTF-8"));
  EXPECT_THAT(failure("{\"\xC0\xAF\":{}}", 0), HasSubstr("UTF-8"));
  EXPECT_THAT(failure("{\"\\ud800\":{}}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(failure("{}\0"s, 0), HasSubstr("NUL byte (at its byte 3)"));
  EXPECT_THAT(failure("\0"s, 0), HasSubstr("NUL byte (at its byte 1)"));
  EXPECT_THAT(failure("{ \n \t\0}"s, 0), HasSubstr("NUL byte (at its byte 6)"));
  EXPECT_THAT(failure("{\"a\0"s, 0), HasSubstr("NUL byte (at its byte 4)"));
  EXPECT_THAT(failure("{\"a\\\0"s, 0), HasSubstr("NUL byte (at its byte 5)"));
  EXPECT_THAT(failure("{}\0 hidden"s, 0), HasSubstr("NUL"));
  EXPECT_THAT(failure("\xEF\xBB\xBF{}", 0), HasSubstr("byte order mark"));
}

TEST(SafetensorsHeader, FaultsAreToldWithTheirPlace) {
  EXPECT_THAT(failure("{x", 0), HasSubstr("at its byte 2)"));
  EXPECT_THAT(failure("{\n\n\n\n  \t\rx", 0), HasSubstr("at its byte 10)"));
  EXPECT_THAT(failure("{" + std::string(1000, ' ') + "\"a\"" + std::string(1000, '\n') + "x", 0),
              HasSubstr("at its byte 2005)"));
  EXPECT_THAT(failure("{}" + std::string(1000, ' ') + "x", 0), HasSubstr("at its byte 1003)"));
}

TEST(SafetensorsHeader, DeepNestingIsRefusedNotFollowed) {
  const std::string deep(90'000, '[');
  EXPECT_THAT(failure("{\"a\":" + deep, 0), HasSubstr("tensor 'a': must be an object"));
  EXPECT_THAT(failure(deep, 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(failure("{\"a\":{\"x\":" + deep, 0), HasSubstr("nested too deeply"));
  EXPECT_THAT(failure("{\"a\":{\"shape\":" + deep, 0), HasSubstr("shape must be"));
}

TEST(SafetensorsHeader, MessagesHoldNoRawControlCharacters) {
  for (const std::string& text :
       {R"({"\u001b[31m\n":{"dtype":"X\n"}})"s, R"({"__metadata__":{"\u001b":1}})"s, R"({"\u0000":1})"s}) {
    for (const char c : failure(text, 0)) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
  EXPECT_THAT(failure(R"({"\n":1})", 0), HasSubstr("tensor '\\x0a'"));
}

TEST(SafetensorsHeader, ReadsAFile) {
  const TempFolder folder;
  const File file = File::open_readonly(
      folder.write("m.safetensors", safetensors_file({{"a", Dtype::kBf16, {2, 3}}, {"b", Dtype::kU8, {5}}})));
  const SafetensorsHeader header = read_safetensors_header(file);
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.data_offset + 17, file.size_bytes());
}

TEST(SafetensorsHeader, TruncationAtEveryByteIsNoticed) {
  const TempFolder folder;
  const std::string whole = safetensors_file({{"a", Dtype::kBf16, {2, 3}}, {"b", Dtype::kU8, {5}}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const File file = File::open_readonly(folder.write("m.safetensors", whole.substr(0, size)));
    const auto header = try_read_safetensors_header(file);
    ASSERT_FALSE(header) << size;
    EXPECT_EQ(header.error().code, ErrorCode::kCorruptFile);
    EXPECT_THAT(header.error().message,
                AllOf(HasSubstr(file.path().string()), HasSubstr(size < 8 ? "too short" : "cut short")));
  }
}

TEST(SafetensorsHeader, HeaderLengthsThatCannotBe) {
  const TempFolder folder;
  const auto failure_of = [&](const std::string& content) {
    const auto header =
        try_read_safetensors_header(File::open_readonly(folder.write("m.safetensors", content)));
    return header ? "accepted" : header.error().message;
  };
  std::string file = with_length("{}");
  file[0] = 3;
  EXPECT_THAT(failure_of(file), AllOf(HasSubstr("has 3 bytes"), HasSubstr("ends after 2")));
  EXPECT_THAT(failure_of("\x01\xE1\xF5\x05\0\0\0\0{}"s), HasSubstr("more than the 100000000"));
  EXPECT_THAT(failure_of("\0\xE1\xF5\x05\0\0\0\0{}"s), HasSubstr("ends after 2"));  // exactly the limit
  EXPECT_THAT(failure_of(std::string(16, '\xFF')), HasSubstr("more than the 100000000"));
  EXPECT_THAT(failure_of("\0\0\0\0\0\0\0\x80{}"s), HasSubstr("has 9223372036854775808 bytes"));
  EXPECT_THAT(failure_of("\0\0\0\0\0\0\0\0{}"s), HasSubstr("not valid JSON"));
  EXPECT_THAT(failure_of("\1\0\0\0\0\0\0\0{}"s), HasSubstr("not valid JSON"));
  EXPECT_THAT(failure_of(with_length("\xEF\xBB\xBF{}")), HasSubstr("byte order mark"));
  EXPECT_THAT(failure_of(with_length("\xEF\xBB") + "\xBF"), HasSubstr("not valid JSON"));
}

TEST(SafetensorsHeader, OtherFilesAreToldByName) {
  const TempFolder folder;
  const auto failure_of = [&](const std::string& content) {
    const auto header =
        try_read_safetensors_header(File::open_readonly(folder.write("m.safetensors", content)));
    return header ? "accepted" : header.error().message;
  };
  EXPECT_THAT(failure_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
              AllOf(HasSubstr("m.safetensors"), HasSubstr("Git LFS pointer"), HasSubstr("git lfs pull")));
  for (const char* page :
       {"<!DOCTYPE html><html>", "\n  <html lang=en>", "\xEF\xBB\xBF<!doctype HTML>", "<HTML>"})
    EXPECT_THAT(failure_of(page), AllOf(HasSubstr("HTML"), HasSubstr("download")));
  EXPECT_THAT(failure_of("PK\x03\x04 archive/data.pkl"), HasSubstr("zip"));
  EXPECT_THAT(failure_of("GGUF\x03\0\0\0\0\0\0\0"s), HasSubstr("GGUF"));
}

}  // namespace
}  // namespace weightpress::model
