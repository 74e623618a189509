#include "model/df11_model.h"

#include <cstring>
#include <map>

#include <gmock/gmock.h>

#include "model_test_support.h"
#include "support/golden.h"

namespace weightpress::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct StoredTensor {
  Dtype dtype = Dtype::kU8;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, StoredTensor>;

std::string file_of(const Tensors& tensors) {
  std::vector<TensorSpec> specs;
  std::vector<const std::string*> contents;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, tensor.dtype, tensor.shape});
    contents.push_back(&tensor.bytes);
  }
  auto layout = plan_safetensors_layout(specs, {});
  std::string file = layout.value().header;
  for (const TensorPlacement& placement : layout->tensors) file += *contents[placement.spec_index];
  return file;
}

StoredTensor bytes_of(std::string bytes) {
  return {Dtype::kU8, {bytes.size()}, std::move(bytes)};
}

StoredTensor splits_of(const std::vector<std::int64_t>& positions) {
  std::string bytes(8 * positions.size(), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), positions.data(), bytes.size());
  return {Dtype::kI64, {positions.size()}, bytes};
}

/// `tables` tables of nothing and the row of code lengths.
StoredTensor luts_of(std::uint64_t tables, const std::map<unsigned, unsigned>& code_lengths) {
  std::string bytes(256 * (tables + 1), '\0');
  for (const auto& [exponent, length] : code_lengths)
    bytes[256 * tables + exponent] = static_cast<char>(length);
  return {Dtype::kU8, {tables + 1, 256}, bytes};
}

/// Three tensors of 10, 8 and 6 weights: 24 to 48 bits of stream. The code is complete, without an EOF.
Tensors small_unit(const std::string& name = "u") {
  return {{name + ".luts", luts_of(2, {{120, 1}, {121, 2}, {90, 2}})},
          {name + ".encoded_exponent", bytes_of(std::string(4, '\0'))},
          {name + ".sign_mantissa", bytes_of(std::string(24, '\0'))},
          {name + ".output_positions", bytes_of(std::string(8, '\0'))},
          {name + ".gaps", bytes_of(std::string(320, '\0'))},
          {name + ".split_positions", splits_of({10, 18})}};
}

/// Two chunks: 30,000 weights in 5,000 bytes.
Tensors two_chunk_unit(std::uint64_t positions_bytes) {
  Tensors tensors = small_unit();
  tensors["u.encoded_exponent"] = bytes_of(std::string(5'000, '\0'));
  tensors["u.sign_mantissa"] = bytes_of(std::string(30'000, '\0'));
  tensors["u.gaps"] = bytes_of(std::string(640, '\0'));
  tensors["u.output_positions"] = bytes_of(std::string(positions_bytes, '\0'));
  return tensors;
}

Result<Df11Model> read(const Tensors& tensors) {
  const TempFolder folder;
  return read_df11_model(
      Checkpoint::open(folder.write("x.safetensors", file_of(tensors)), Df11Policy::kAccept));
}

/// The message of the unit's rejection, whose code, unit, tensor and file are checked.
std::string rejection(const Tensors& tensors, const std::string& buffer) {
  const auto model = read(tensors);
  if (model) return "accepted";
  EXPECT_EQ(model.error().code, ErrorCode::kCorruptFile);
  EXPECT_EQ(model.error().unit, "u");
  EXPECT_EQ(model.error().tensor, "u." + buffer);
  EXPECT_THAT(model.error().message, AllOf(HasSubstr("x.safetensors: unit 'u': buffer " + buffer + " ")));
  return model.error().message;
}

std::string rejection_with(const std::string& buffer, StoredTensor changed) {
  Tensors tensors = small_unit();
  tensors["u." + buffer] = std::move(changed);
  return rejection(tensors, buffer);
}

constexpr std::array kAllBuffers = {Df11Buffer::kLuts,         Df11Buffer::kEncodedExponent,
                                    Df11Buffer::kSignMantissa, Df11Buffer::kOutputPositions,
                                    Df11Buffer::kGaps,         Df11Buffer::kSplitPositions};
static_assert(kAllBuffers.size() == kNumDf11Buffers);

TEST(Df11Model, AUnitAndTheTensorsAroundIt) {
  const TempFolder folder;
  Tensors tensors = small_unit();
  tensors["u.norm.weight"] = {Dtype::kBf16, {2}, "abcd"};
  tensors["a.luts"] = bytes_of("one tensor of that name is no unit");
  tensors[".gaps"] = bytes_of("1");
  tensors[".luts"] = bytes_of("without a name neither");
  tensors["u.luts.gaps"] = bytes_of("1");
  const auto path = folder.write("x.safetensors", file_of(tensors));
  const Checkpoint checkpoint = Checkpoint::open(path, Df11Policy::kAccept);
  const auto model = read_df11_model(checkpoint);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_EQ(model->units.size(), 1u);
  const StoredUnit& unit = model->units[0];
  EXPECT_EQ(unit.name, "u");
  for (const Df11Buffer buffer : kAllBuffers)
    EXPECT_EQ(checkpoint.tensors()[unit.buffer(buffer)].name, "u." + std::string(df11_buffer_name(buffer)));
  EXPECT_EQ(unit.size_bytes, 768u + 4 + 24 + 8 + 320 + 16);
  EXPECT_EQ(unit.num_weights, 24u);
  EXPECT_EQ(unit.stream_bytes, 4u);
  EXPECT_EQ(unit.num_chunks, 1u);
  EXPECT_EQ(unit.num_positions, 2u);
  EXPECT_EQ(unit.num_tables, 2u);
  EXPECT_EQ(unit.code_lengths[120], 1);
  EXPECT_EQ(unit.code_lengths[121], 2);
  EXPECT_EQ(unit.code_lengths[122], 0);
  EXPECT_THAT(unit.split_positions, ElementsAre(10, 18));
  EXPECT_EQ(unit.num_tensors(), 3u);

  std::vector<std::string> kept;
  for (const std::size_t index : model->kept) kept.push_back(checkpoint.tensors()[index].name);
  EXPECT_THAT(kept, ElementsAre(".gaps", ".luts", "a.luts", "u.luts.gaps", "u.norm.weight"));
}

TEST(Df11Model, AnOrdinaryModelHasNoUnits) {
  const auto model = read({{"a.weight", {Dtype::kBf16, {2}, "abcd"}}, {"b.encoded_exponent", bytes_of("x")}});
  ASSERT_TRUE(model);
  EXPECT_THAT(model->units, IsEmpty());
  EXPECT_THAT(model->kept, ElementsAre(0, 1));
}

TEST(Df11Model, OfficialUnits) {
  using weightpress::testing::golden_folder;
  const auto content = [](const std::filesystem::path& path) {
    const auto bytes = weightpress::testing::read_bytes(path);
    return std::string(bytes.begin(), bytes.end());
  };
  for (const std::string& name : weightpress::testing::golden_units()) {
    SCOPED_TRACE(name);
    const auto folder = golden_folder() / "df11" / name;
    const std::string luts = content(folder / "luts_safe.u8"),
                      splits = content(folder / "split_positions.i64");
    const auto model = read({{"u.luts", {Dtype::kU8, {luts.size() / 256, 256}, luts}},
                             {"u.encoded_exponent", bytes_of(content(folder / "encoded_exponent.u8"))},
                             {"u.sign_mantissa", bytes_of(content(folder / "sign_mantissa.u8"))},
                             {"u.output_positions", bytes_of(content(folder / "output_positions.u32"))},
                             {"u.gaps", bytes_of(content(folder / "gaps.u8"))},
                             {"u.split_positions", {Dtype::kI64, {splits.size() / 8}, splits}}});
    ASSERT_TRUE(model) << model.error().message;
    const auto weights = weightpress::testing::read_bf16(folder / "weights.bf16");
    EXPECT_EQ(model->units.at(0).num_weights, weights.size());
    std::array<bool, 256> occurs{};
    for (const std::uint16_t weight : weights) occurs[weight >> 7 & 0xFF] = true;
    for (unsigned exponent = 0; exponent < 256; ++exponent)
      EXPECT_EQ(model->units[0].code_lengths[exponent] != 0, occurs[exponent]);
  }
}

TEST(Df11Model, UnitsMayLieInAnyFilesAndCountTheirNumbers) {
  const TempFolder folder;
  std::array<Tensors, 3> files;
  std::size_t next = 0;
  for (const char* name : {"l.10", "l.9", "l.09", "a"})
    for (auto& [tensor, content] : small_unit(name)) files[next++ % files.size()][tensor] = content;
  for (std::size_t i = 0; i < files.size(); ++i)
    folder.write(std::to_string(i) + ".safetensors", file_of(files[i]));
  const auto model = read_df11_model(Checkpoint::open(folder.path(), Df11Policy::kAccept));
  ASSERT_TRUE(model) << model.error().message;
  std::vector<std::string> names;
  for (const StoredUnit& unit : model->units) names.push_back(unit.name);
  EXPECT_THAT(names, ElementsAre("a", "l.09", "l.9", "l.10"));
  EXPECT_THAT(model->kept, IsEmpty());
}

TEST(Df11Model, EachBufferIsNeeded) {
  for (const Df11Buffer buffer : kAllBuffers) {
    const std::string name(df11_buffer_name(buffer));
    Tensors tensors = small_unit();
    tensors.erase("u." + name);
    EXPECT_THAT(rejection(tensors, name), HasSubstr("is missing"));
  }
}

TEST(Df11Model, EachBufferHasItsDtypeAndShape) {
  for (const Df11Buffer buffer : kAllBuffers) {
    const std::string name(df11_buffer_name(buffer));
    SCOPED_TRACE(name);
    const StoredTensor right = small_unit()["u." + name];
    StoredTensor wrong = right;
    wrong.dtype = right.dtype == Dtype::kU8 ? Dtype::kI8 : Dtype::kU64;
    EXPECT_THAT(rejection_with(name, wrong), HasSubstr("is " + std::string(dtype_name(wrong.dtype)) + " ["));
    wrong = right;
    wrong.shape.push_back(1);
    EXPECT_THAT(rejection_with(name, wrong), HasSubstr("but must be"));
    wrong.shape = {};
    wrong.bytes.resize(right.dtype == Dtype::kU8 ? 1 : 8);
    EXPECT_THAT(rejection_with(name, wrong), HasSubstr("[], but must be"));
  }
  EXPECT_THAT(rejection_with("luts", bytes_of(std::string(768, '\0'))), HasSubstr("[768]"));
  EXPECT_THAT(rejection_with("luts", {Dtype::kU8, {256, 3}, std::string(768, '\0')}), HasSubstr("[256, 3]"));
  EXPECT_THAT(rejection_with("luts", {Dtype::kU8, {1, 256}, std::string(256, '\1')}), HasSubstr("[1, 256]"));
  EXPECT_THAT(rejection_with("luts", {Dtype::kU8, {0, 256}, ""}), HasSubstr("[0, 256]"));
}

TEST(Df11Model, SizesMustAgree) {
  const auto of_size = [](std::size_t bytes) { return bytes_of(std::string(bytes, '\0')); };
  EXPECT_THAT(rejection_with("sign_mantissa", of_size(0)), HasSubstr("is empty"));
  for (const std::size_t bytes : {3u, 6u})
    EXPECT_EQ(rejection_with("encoded_exponent", of_size(bytes)), "accepted");
  for (const std::size_t bytes : {0u, 2u, 7u, 4096u})
    EXPECT_THAT(rejection_with("encoded_exponent", of_size(bytes)), HasSubstr("take 3 to 6 bytes"));
  for (const std::size_t bytes : {0u, 319u, 321u, 640u})
    EXPECT_THAT(rejection_with("gaps", of_size(bytes)), HasSubstr("take 320 bytes"));
  for (const std::size_t bytes : {0u, 4u, 7u, 9u, 12u})
    EXPECT_THAT(rejection_with("output_positions", of_size(bytes)), HasSubstr("take 8 bytes;"));
}

TEST(Df11Model, OutputPositionsMayLackOneFromTwoChunksOn) {
  for (const std::uint64_t positions : {2u, 3u}) {
    const auto model = read(two_chunk_unit(4 * positions));
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->units.at(0).num_chunks, 2u);
    EXPECT_EQ(model->units[0].num_positions, positions);
  }
  for (const std::uint64_t bytes : {0u, 4u, 9u, 11u, 16u})
    EXPECT_THAT(rejection(two_chunk_unit(bytes), "output_positions"), HasSubstr("take 12 bytes or 4 less"));
}

TEST(Df11Model, ExactChunksOpenNoFurtherOne) {
  Tensors tensors = two_chunk_unit(12);
  tensors["u.encoded_exponent"] = bytes_of(std::string(8192, '\0'));
  tensors["u.sign_mantissa"] = bytes_of(std::string(60'000, '\0'));
  const auto model = read(tensors);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->units.at(0).num_chunks, 2u);
}

TEST(Df11Model, CodeLengthsOfOtherMakers) {
  for (const std::uint64_t tables : {1u, 17u, 18u, 40u}) {
    Tensors tensors = small_unit();
    tensors["u.luts"] = luts_of(tables, {{0, 1}, {239, 32}});  // incomplete, no symbol of the official kind
    tensors["u.luts"].bytes[0] = '\xF0';
    const auto model = read(tensors);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->units.at(0).num_tables, tables);
    EXPECT_EQ(model->units[0].code_lengths[239], 32);
  }
}

TEST(Df11Model, CodeLengthsThatNoCodeHas) {
  EXPECT_THAT(rejection_with("luts", luts_of(1, {})), HasSubstr("no code length"));
  EXPECT_THAT(rejection_with("luts", luts_of(1, {{120, 33}})), HasSubstr("exponent 120 has 33 bits"));
  EXPECT_THAT(rejection_with("luts", luts_of(1, {{120, 1}, {7, 255}})), HasSubstr("exponent 7 has 255 bits"));
  EXPECT_THAT(rejection_with("luts", luts_of(1, {{120, 1}, {240, 2}})), HasSubstr("exponent 240 has 2 bits"));
  EXPECT_THAT(rejection_with("luts", luts_of(1, {{1, 1}, {2, 1}, {3, 32}})), HasSubstr("no prefix code"));
  StoredTensor all_ones = luts_of(1, {});
  for (unsigned exponent = 0; exponent < 240; ++exponent) all_ones.bytes[256 + exponent] = 1;
  EXPECT_THAT(rejection_with("luts", all_ones), HasSubstr("no prefix code"));
}

TEST(Df11Model, SplitPositionsAscendWithinTheUnit) {
  for (const std::vector<std::int64_t>& positions :
       {std::vector<std::int64_t>{}, {0}, {24}, {0, 0, 5, 5, 24, 24}, {1, 2, 3}}) {
    Tensors tensors = small_unit();
    tensors["u.split_positions"] = splits_of(positions);
    const auto model = read(tensors);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->units.at(0).num_tensors(), positions.size() + 1);
  }
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& [positions, wrong] : std::map<std::vector<std::int64_t>, std::string>{
           {{10, 9}, "has 9 as entry 1"},
           {{25}, "has 25 as entry 0"},
           {{10, 18, 25}, "has 25 as entry 2"},
           {{-1}, "has -1 as entry 0"},
           {{5, -5, 6}, "has -5 as entry 1"},
           {{kMost}, "has 9223372036854775807 as entry 0"},
           {{kLeast, 3}, "has -9223372036854775808 as entry 0"}}) {
    EXPECT_THAT(rejection_with("split_positions", splits_of(positions)),
                AllOf(HasSubstr(wrong), HasSubstr("number of weights (24)")));
  }
}

/// A file of the small unit, one buffer of which is as large as `shape` says and full of holes.
std::string rejection_of_huge(const std::string& buffer, std::uint64_t elements) {
  const TempFolder folder;
  Tensors tensors = small_unit();
  tensors["u." + buffer].shape = {elements};
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.dtype, tensor.shape});
  const auto layout = plan_safetensors_layout(specs, {});
  const auto path = folder.write("x.safetensors", layout->header);
  std::filesystem::resize_file(path, layout->file_bytes);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    for (const TensorPlacement& placement : layout->tensors) {
      if (specs[placement.spec_index].name != "u.luts") continue;
      file.seekp(static_cast<std::streamoff>(placement.offset_bytes));
      file << tensors["u.luts"].bytes;
    }
  }
  const auto model = read_df11_model(Checkpoint::open(path, Df11Policy::kAccept));
  return model ? "accepted" : model.error().message;
}

TEST(Df11Model, HugeClaimsAreRefusedBeforeMemoryIsTaken) {
  EXPECT_THAT(rejection_of_huge("sign_mantissa", std::uint64_t{1} << 32), HasSubstr("positions of 32 bits"));
  EXPECT_THAT(rejection_of_huge("sign_mantissa", 0xFFFFFFFF),
              HasSubstr("buffer encoded_exponent has 4 bytes"));
  EXPECT_THAT(rejection_of_huge("encoded_exponent", std::uint64_t{1} << 34), HasSubstr("take 3 to 6 bytes"));
  EXPECT_THAT(rejection_of_huge("gaps", std::uint64_t{1} << 34), HasSubstr("take 320 bytes"));
  EXPECT_THAT(rejection_of_huge("split_positions", std::uint64_t{1} << 30), HasSubstr("none of a model"));
  EXPECT_THAT(rejection_of_huge("split_positions", kMaxUnitTensors), HasSubstr("none of a model"));
  EXPECT_EQ(rejection_of_huge("split_positions", kMaxUnitTensors - 1), "accepted");  // of empty tensors
}

TEST(Df11Model, AnIndexKnowsNothingOfUnits) {
  const TempFolder folder;
  folder.write("u.safetensors", file_of(small_unit()));
  folder.write("kept.safetensors", file_of({{"norm.weight", {Dtype::kBf16, {2}, "abcd"}}}));
  const auto index =
      folder.write("model.safetensors.index.json", R"({"weight_map":{"norm.weight":"kept.safetensors"}})");
  const auto num_tensors = [&](const std::filesystem::path& path) {
    return Checkpoint::open(path, Df11Policy::kAccept).tensors().size();
  };
  EXPECT_EQ(num_tensors(folder.path()), 7u);
  EXPECT_EQ(num_tensors(index), 1u);
  folder.write("model.safetensors.index.json", R"({"weight_map":{"u.weight":"of-the-source.safetensors"}})");
  EXPECT_EQ(num_tensors(folder.path()), 7u);
  folder.write("fp16.safetensors.index.json", "{}");
  EXPECT_EQ(num_tensors(folder.path()), 7u);
}

TEST(Df11Model, AnIndexOfASourceStillChooses) {
  const TempFolder folder;
  folder.write("model.safetensors", file_of({{"a.weight", {Dtype::kBf16, {2}, "abcd"}}}));
  folder.write("copy.safetensors", file_of({{"a.weight", {Dtype::kBf16, {2}, "abcd"}}}));
  folder.write("other.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a.weight":"model.safetensors"}})");
  EXPECT_EQ(Checkpoint::open(folder.path(), Df11Policy::kAccept).files().size(), 1u);
}

TEST(Df11Model, NamesInMessagesAreEscaped) {
  Tensors tensors = small_unit("u\x1b[2J");
  tensors.erase("u\x1b[2J.gaps");
  const auto model = read(tensors);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, AllOf(HasSubstr("'u\\x1b[2J'"), HasSubstr("buffer gaps is missing")));
}

}  // namespace
}  // namespace weightpress::model
