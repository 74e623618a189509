#include "model/checkpoint.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kIndexName = "model.safetensors.index.json";

std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const SourceTensor& tensor : checkpoint.tensors()) names.push_back(tensor.name);
  return names;
}

ErrorDetails failure(const std::filesystem::path& path) {
  return error_of([&] { Checkpoint::open(path); });
}

// Two shards, "1.safetensors" with a and c, "2.safetensors" with b.
struct Shards : TempFolder {
  Shards() {
    write("1.safetensors", safetensors_file({{"c", Dtype::kU8, {3}}, {"a", Dtype::kBf16, {2}}}));
    write("2.safetensors", safetensors_file({{"b", Dtype::kBf16, {1, 4}}}));
  }
};

TEST(Checkpoint, AFolderWithoutIndexHoldsAllItsFiles) {
  const Shards folder;
  folder.write("._1.safetensors", "left by another system");
  folder.write("config.json", "{}");
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_THAT(names_of(checkpoint), testing::ElementsAre("a", "b", "c"));
  EXPECT_EQ(checkpoint.files().size(), 2u);
  EXPECT_EQ(checkpoint.folder(), folder.path());
  EXPECT_EQ(checkpoint.total_bytes(), 4u + 8 + 3);
  const SourceTensor* b = checkpoint.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(checkpoint.files()[b->file_index].path(), folder / "2.safetensors");
  EXPECT_EQ(b->num_elements(), 4u);
  EXPECT_EQ(checkpoint.find("bb"), nullptr);
  EXPECT_EQ(checkpoint.find(""), nullptr);
  char bytes[3] = {};
  checkpoint.read(*checkpoint.find("c"), 1, 2, bytes);  // behind a's four bytes
  EXPECT_EQ(std::string(bytes), "\x05\x06");
}

TEST(Checkpoint, AFileAlone) {
  const Shards folder;
  const Checkpoint checkpoint = Checkpoint::open(folder / "2.safetensors");
  EXPECT_THAT(names_of(checkpoint), testing::ElementsAre("b"));
  EXPECT_EQ(checkpoint.folder(), folder.path());
}

TEST(Checkpoint, AnIndexChoosesTheFiles) {
  const Shards folder;
  folder.write("consolidated.safetensors", safetensors_file({{"a", Dtype::kBf16, {2}}}));
  const auto index =
      folder.write(kIndexName, R"({"metadata":{"total_size":12,"x":[{"weight_map":1}]},"weight_map":)"
                               R"({"a":"1.safetensors","b":"2.safetensors","c":"1.safetensors"}})");
  for (const auto& path : {folder.path(), index}) {
    const Checkpoint checkpoint = Checkpoint::open(path);
    EXPECT_THAT(names_of(checkpoint), testing::ElementsAre("a", "b", "c"));
    EXPECT_EQ(checkpoint.files().size(), 2u);
  }
}

TEST(Checkpoint, AnIndexThatDoesNotFitItsFiles) {
  const Shards folder;
  const auto with_map = [&](std::string_view map) {
    folder.write(kIndexName, "{\"weight_map\":{" + std::string(map) + "}}");
    return failure(folder.path());
  };
  const ErrorDetails missing_file =
      with_map(R"("a":"1.safetensors","b":"2.safetensors","c":"1.safetensors","d":"3.safetensors")");
  EXPECT_EQ(missing_file.code, ErrorCode::kNotFound);
  EXPECT_THAT(missing_file.message,
              AllOf(HasSubstr("3.safetensors"), HasSubstr("missing"), HasSubstr(kIndexName)));

  const ErrorDetails missing_tensor =
      with_map(R"("a":"1.safetensors","b":"2.safetensors","c":"1.safetensors","d":"2.safetensors")");
  EXPECT_EQ(missing_tensor.code, ErrorCode::kNotFound);
  EXPECT_EQ(missing_tensor.tensor, "d");
  EXPECT_THAT(missing_tensor.message,
              AllOf(HasSubstr("'d' is missing from '2.safetensors'"), HasSubstr(kIndexName)));

  EXPECT_THAT(with_map(R"("a":"2.safetensors","b":"2.safetensors","c":"1.safetensors")").message,
              HasSubstr("'a' should be in '2.safetensors' but is in '1.safetensors'"));
  EXPECT_THAT(with_map(R"("a":"1.safetensors","b":"2.safetensors")").message,
              HasSubstr("'c' of '1.safetensors' is not listed"));
  EXPECT_THAT(with_map(R"("b":"2.safetensors","c":"1.safetensors")").message,
              HasSubstr("'a' of '1.safetensors' is not listed"));
}

TEST(Checkpoint, AnIndexThatIsNone) {
  const Shards folder;
  const auto message = [&](std::string_view content) {
    folder.write(kIndexName, content);
    const ErrorDetails error = failure(folder.path());
    EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
    EXPECT_THAT(error.message, HasSubstr(kIndexName));
    return error.message;
  };
  EXPECT_THAT(message("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message("1"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message("{}"), HasSubstr("no weight_map"));
  EXPECT_THAT(message(R"({"weight_map":[]})"), HasSubstr("must be an object of file names"));
  EXPECT_THAT(message(R"({"weight_map":null})"), HasSubstr("must be an object of file names"));
  EXPECT_THAT(message(R"({"weight_map":{"a":1}})"), HasSubstr("must be an object of file names"));
  EXPECT_THAT(message(R"({"weight_map":{"a":{}}})"), HasSubstr("must be an object of file names"));
  EXPECT_THAT(message(R"({"weight_map":{},"weight_map":{}})"), HasSubstr("duplicate weight_map"));
  EXPECT_THAT(message(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})"),
              HasSubstr("duplicate entry"));
  EXPECT_THAT(message(R"({"weight_map":{"a":"../1.safetensors"}})"), HasSubstr("plain name"));
  EXPECT_THAT(message(R"({"weight_map":{"a":"1.bin"}})"), HasSubstr("plain name"));
  EXPECT_THAT(message("{\"x\":" + std::string(90'000, '[')), HasSubstr("nested too deeply"));
  EXPECT_THAT(message(std::string("{\"weight_map\":{}}\0", 18)), HasSubstr("NUL"));
}

TEST(Checkpoint, TwoIndexesAreNotGuessedBetween) {
  const Shards folder;
  folder.write(kIndexName, "{}");
  folder.write("model.fp16.safetensors.index.json", "{}");
  EXPECT_THAT(failure(folder.path()).message,
              AllOf(HasSubstr("more than one index"), HasSubstr("model.fp16"), HasSubstr(kIndexName)));
}

TEST(Checkpoint, OneNameInTwoFiles) {
  const Shards folder;
  folder.write("3.safetensors", safetensors_file({{"b", Dtype::kBf16, {1}}}));
  const ErrorDetails error = failure(folder.path());
  EXPECT_EQ(error.code, ErrorCode::kNameConflict);
  EXPECT_EQ(error.tensor, "b");
  EXPECT_THAT(error.message, AllOf(HasSubstr("'b'"), HasSubstr("2.safetensors"), HasSubstr("3.safetensors")));
}

TEST(Checkpoint, PathsThatAreNoModel) {
  const TempFolder folder;
  EXPECT_EQ(failure(folder / "none").code, ErrorCode::kNotFound);
  EXPECT_THAT(failure(folder.path()).message, HasSubstr("no .safetensors file"));
  EXPECT_THAT(failure(folder.write("a.bin", "")).message, HasSubstr("neither"));
  folder.write("m.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(failure(folder.path()).message, AllOf(HasSubstr("m.safetensors"), HasSubstr("git lfs pull")));
}

TEST(Checkpoint, CompressedModelsAreRecognised) {
  const TempFolder folder;
  folder.write("model_layers_0.safetensors",
               safetensors_file({{"model.layers.0.encoded_exponent", Dtype::kU8, {3}},
                                 {"model.layers.0.sign_mantissa", Dtype::kU8, {4}}}));
  folder.write("other.safetensors", safetensors_file({{"x.encoded_exponent", Dtype::kU8, {1}}}));
  const ErrorDetails error = failure(folder.path());
  EXPECT_EQ(error.unit, "model.layers.0");
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("already DF11-compressed"), HasSubstr("model_layers_0.safetensors")));
  EXPECT_NO_THROW(Checkpoint::open(folder / "other.safetensors"));
}

}  // namespace
}  // namespace weightpress::model
