// The expected headers were made by the `safetensors` Python package, version 0.7.0 (safetensors.serialize),
// for the dtypes it can write: all but F6_* and F8_*FNUZ.
#include "model/safetensors_layout.h"

#include <gmock/gmock.h>

#include "model/safetensors_header.h"
#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

TEST(SafetensorsLayout, DtypesGoByRankAsThePackageWritesThem) {
  const std::vector<TensorSpec> specs = {{"t_bool", Dtype::kBool, {2, 3}},
                                         {"t_uint8", Dtype::kU8, {2, 3}},
                                         {"t_int8", Dtype::kI8, {2, 3}},
                                         {"t_float8_e5m2", Dtype::kF8E5m2, {2, 3}},
                                         {"t_float8_e4m3fn", Dtype::kF8E4m3, {2, 3}},
                                         {"t_float8_e8m0fnu", Dtype::kF8E8m0, {2, 3}},
                                         {"t_int16", Dtype::kI16, {2, 3}},
                                         {"t_uint16", Dtype::kU16, {2, 3}},
                                         {"t_float16", Dtype::kF16, {2, 3}},
                                         {"t_bfloat16", Dtype::kBf16, {2, 3}},
                                         {"t_int32", Dtype::kI32, {2, 3}},
                                         {"t_uint32", Dtype::kU32, {2, 3}},
                                         {"t_float32", Dtype::kF32, {2, 3}},
                                         {"t_complex64", Dtype::kC64, {2, 3}},
                                         {"t_float64", Dtype::kF64, {2, 3}},
                                         {"t_int64", Dtype::kI64, {2, 3}},
                                         {"t_uint64", Dtype::kU64, {2, 3}},
                                         {"t_float4_e2m1fn_x2", Dtype::kF4, {2, 6}}};
  const auto layout = plan_safetensors_layout(specs, {});
  ASSERT_TRUE(layout);
  EXPECT_EQ(
      layout->header,
      "\xc8\x04\0\0\0\0\0\0"s
      R"({"t_uint64":{"dtype":"U64","shape":[2,3],"data_offsets":[0,48]},"t_int64":{"dtype":"I64","shape":[2,3],"data_offsets":[48,96]},"t_float64":{"dtype":"F64","shape":[2,3],"data_offsets":[96,144]},"t_complex64":{"dtype":"C64","shape":[2,3],"data_offsets":[144,192]},"t_float32":{"dtype":"F32","shape":[2,3],"data_offsets":[192,216]},"t_uint32":{"dtype":"U32","shape":[2,3],"data_offsets":[216,240]},"t_int32":{"dtype":"I32","shape":[2,3],"data_offsets":[240,264]},"t_bfloat16":{"dtype":"BF16","shape":[2,3],"data_offsets":[264,276]},"t_float16":{"dtype":"F16","shape":[2,3],"data_offsets":[276,288]},"t_uint16":{"dtype":"U16","shape":[2,3],"data_offsets":[288,300]},"t_int16":{"dtype":"I16","shape":[2,3],"data_offsets":[300,312]},"t_float8_e8m0fnu":{"dtype":"F8_E8M0","shape":[2,3],"data_offsets":[312,318]},"t_float8_e4m3fn":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[318,324]},"t_float8_e5m2":{"dtype":"F8_E5M2","shape":[2,3],"data_offsets":[324,330]},"t_int8":{"dtype":"I8","shape":[2,3],"data_offsets":[330,336]},"t_uint8":{"dtype":"U8","shape":[2,3],"data_offsets":[336,342]},"t_float4_e2m1fn_x2":{"dtype":"F4","shape":[2,6],"data_offsets":[342,348]},"t_bool":{"dtype":"BOOL","shape":[2,3],"data_offsets":[348,354]}})");
  EXPECT_EQ(layout->file_bytes, 1586u);
  EXPECT_EQ(layout->tensors.front().spec_index, 16u);
  EXPECT_EQ(layout->tensors.front().offset_bytes, layout->header.size());
  EXPECT_EQ(layout->tensors.back().spec_index, 0u);
  EXPECT_EQ(layout->tensors.back().offset_bytes, layout->header.size() + 348);
  EXPECT_EQ(layout->tensors.back().size_bytes, 6u);
}

TEST(SafetensorsLayout, NamesGoByBytesAndMetadataComesFirst) {
  const std::vector<TensorSpec> specs = {{"b", Dtype::kBf16, {2}},
                                         {"a", Dtype::kBf16, {}},
                                         {"B", Dtype::kBf16, {0, 5}},
                                         {"\xc3\xa9", Dtype::kBf16, {1}},
                                         {"a.b", Dtype::kU8, {3}},
                                         {"a-b", Dtype::kU8, {1}},
                                         {"\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80", Dtype::kI64, {1}}};
  const auto layout = plan_safetensors_layout(specs, kPytorchMetadata);
  ASSERT_TRUE(layout);
  EXPECT_EQ(
      layout->header,
      "\xb0\x01\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"},"s
      "\"\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
      R"("B":{"dtype":"BF16","shape":[0,5],"data_offsets":[8,8]},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},)"
      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[10,14]},)"
      "\"\xc3\xa9\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[14,16]},"
      R"("a-b":{"dtype":"U8","shape":[1],"data_offsets":[16,17]},)"
      R"("a.b":{"dtype":"U8","shape":[3],"data_offsets":[17,20]}}   )");
  EXPECT_EQ(layout->file_bytes, 460u);
}

TEST(SafetensorsLayout, NamesAreEscapedAsThePackageDoes) {
  const std::vector<TensorSpec> specs = {{"q\"u\\o/t", Dtype::kU8, {1}},
                                         {"c\b\f\n\r\t\x01\x1f\x7f\0"s, Dtype::kU8, {1}},
                                         {"", Dtype::kU8, {1}},
                                         {"\xe2\x80\xa8", Dtype::kU8, {1}}};
  const auto layout = plan_safetensors_layout(specs, kPytorchMetadata);
  ASSERT_TRUE(layout);
  EXPECT_EQ(
      layout->header,
      "\x18\x01\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"},"s
      "\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
      "\"c\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\\u0000\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
      "\"q\\\"u\\\\o/t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},"
      "\"\xe2\x80\xa8\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}  ");
  EXPECT_EQ(layout->file_bytes, 292u);
}

TEST(SafetensorsLayout, FilesWithoutTensors) {
  EXPECT_EQ(plan_safetensors_layout({}, {})->header, "\x08\0\0\0\0\0\0\0{}      "s);
  EXPECT_EQ(plan_safetensors_layout({}, kPytorchMetadata)->header,
            "\x20\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}"s);
}

TEST(SafetensorsLayout, WhatIsPlannedIsReadBack) {
  std::vector<TensorSpec> specs;
  for (unsigned i = 0; i < kNumDtypes; ++i)
    for (std::uint64_t n : {0, 8, 24})
      specs.push_back({std::to_string(99 - i) + "." + std::to_string(n), static_cast<Dtype>(i), {n, 1}});
  const auto layout = plan_safetensors_layout(specs, {});
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->header.size() % 8, 0u);
  const auto header = parse_safetensors_header(std::string_view(layout->header).substr(8),
                                               layout->file_bytes - layout->header.size(), "m");
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[layout->tensors[i].spec_index];
    EXPECT_EQ(header->tensors[i].name, spec.name);
    EXPECT_EQ(header->tensors[i].dtype, spec.dtype);
    EXPECT_EQ(header->tensors[i].shape, spec.shape);
    EXPECT_EQ(header->data_offset + header->tensors[i].begin_bytes, layout->tensors[i].offset_bytes);
    EXPECT_EQ(header->tensors[i].size_bytes(), layout->tensors[i].size_bytes);
  }
}

TEST(SafetensorsLayout, WhatNoFileCanHold) {
  const auto failure = [](std::vector<TensorSpec> specs) {
    const auto layout = plan_safetensors_layout(specs, {});
    return layout ? "accepted" : layout.error().message;
  };
  EXPECT_THAT(failure({{"a", Dtype::kU8, {1}}, {"a", Dtype::kBf16, {1}}}), HasSubstr("two tensors"));
  EXPECT_THAT(failure({{"__metadata__", Dtype::kU8, {1}}}), HasSubstr("reserved"));
  EXPECT_THAT(failure({{"a", Dtype::kF4, {3}}}), HasSubstr("whole number of bytes"));
  EXPECT_THAT(failure({{"a", Dtype::kU8, {1ull << 32, 1ull << 32}}}), HasSubstr("overflows"));
  std::vector<TensorSpec> large;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
    large.push_back({name, Dtype::kU64, {1ull << 57}});
  EXPECT_THAT(failure(large), HasSubstr("too large"));
  large.pop_back();
  EXPECT_EQ(failure(large), "accepted");
}

}  // namespace
}  // namespace weightpress::model
