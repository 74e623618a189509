#include "job/stored_hashes.h"

#include <gmock/gmock.h>

#include "model/model_test_support.h"
#include "model/safetensors_layout.h"
#include "model/tensor_hashes.h"

namespace weightpress::job {
namespace {

using model::Checkpoint;
using model::Df11Policy;
using testing::HasSubstr;

// A file whose data bytes are `fill`, with right hashes.
std::string hashed_file(const std::vector<model::TensorSpec>& specs, char fill) {
  std::vector<std::string_view> names;
  for (const std::size_t spec : model::data_order(specs)) names.emplace_back(specs[spec].name);
  const model::ReservedHashes reserved = model::reserve_hashes({}, names);
  const auto layout = model::plan_safetensors_layout(specs, reserved.metadata_json);
  std::string file = layout.value().header;
  const model::Sha256Digest header = model::sha256(std::string_view(file).substr(8));
  const auto set = [&](std::uint64_t offset, const model::Sha256Digest& digest) {
    file.replace(model::kMetadataOffset + offset, model::kSha256HexDigits, model::hex_of(digest));
  };
  for (std::size_t i = 0; i < names.size(); ++i)
    set(reserved.tensor_offsets[i], model::sha256(std::string(layout.value().tensors[i].size_bytes, fill)));
  set(reserved.header_offset, header);
  file.resize(layout.value().file_bytes, fill);
  return file;
}

const std::vector<model::TensorSpec> kSpecs = {{"a", model::Dtype::kBf16, {100, 3}},
                                               {"b", model::Dtype::kU8, {700'000}},
                                               {"none", model::Dtype::kF32, {0, 4}}};

struct StoredHashes : testing::Test {
  StoredHashesReport check(int threads = 2) const {
    return check_stored_hashes(Checkpoint::open(folder.path(), Df11Policy::kAccept), threads);
  }

  model::TempFolder folder;
  std::string sound = hashed_file(kSpecs, 'x');
};

TEST_F(StoredHashes, WhatIsRightHasNoFailures) {
  folder.write("x.safetensors", sound);
  folder.write("y.safetensors", hashed_file({{"c", model::Dtype::kU8, {5}}}, 'y'));
  folder.write("z.safetensors", hashed_file({}, 'z'));
  for (const int threads : {1, 2, 7}) {
    const Checkpoint checkpoint = Checkpoint::open(folder.path(), Df11Policy::kAccept);
    std::uint64_t told = 0;
    const auto report = check_stored_hashes(checkpoint, threads, [&](std::uint64_t bytes) { told += bytes; });
    EXPECT_TRUE(report.failures.empty()) << report.failures[0].message;
    EXPECT_EQ(report.extent.num_files, 3u);
    EXPECT_EQ(report.extent.tensor_bytes, 700'605u);
    EXPECT_EQ(told, 700'605u);
  }
}

TEST_F(StoredHashes, FilesWithoutHashesAreLeftAlone) {
  folder.write("x.safetensors", model::safetensors_file({{"c", model::Dtype::kU8, {5}}}));
  EXPECT_EQ(check().extent.num_files, 0u);
  folder.write("y.safetensors", sound);
  const auto report = check();
  EXPECT_EQ(report.extent.num_files, 1u);
  EXPECT_EQ(report.extent.tensor_bytes, 700'600u);
  EXPECT_TRUE(report.failures.empty());
}

TEST_F(StoredHashes, EveryTensorThatDiffersIsNamed) {
  folder.write("a.safetensors", hashed_file({{"c", model::Dtype::kU8, {5}}}, 'y'));
  std::string bytes = sound;
  bytes.back() ^= 1;                          // b's
  bytes[bytes.size() - 700'000 - 1] ^= 0x40;  // a's
  folder.write("x.safetensors", bytes);
  const auto report = check();
  ASSERT_EQ(report.failures.size(), 2u);
  EXPECT_EQ(report.failures[0].tensor, "a");
  EXPECT_EQ(report.failures[1].tensor, "b");
  for (const HashFailure& failure : report.failures) {
    EXPECT_EQ(failure.file_index, 1u);
    EXPECT_THAT(failure.message, HasSubstr("SHA-256"));
  }
  EXPECT_THAT(report.failures[1].message,
              HasSubstr("the stored " + model::hex_of(model::sha256(std::string(700'000, 'x')))));
}

TEST_F(StoredHashes, AWrongHeaderIsTheFilesFailureAndTensorsAreCheckedAllTheSame) {
  std::string bytes = sound;
  bytes.back() ^= 1;
  const std::size_t shape = bytes.find("[100,3]");
  bytes.replace(shape, 7, "[3,100]");
  folder.write("x.safetensors", bytes);
  const auto report = check();
  ASSERT_EQ(report.failures.size(), 2u);
  EXPECT_EQ(report.failures[0].tensor, "");
  EXPECT_THAT(report.failures[0].message, HasSubstr("x.safetensors: its header is not what it was"));
  EXPECT_EQ(report.failures[1].tensor, "b");
}

TEST_F(StoredHashes, HashesThatAreNotWholeAreTheFilesFailure) {
  std::string bytes = sound;
  bytes.replace(bytes.find("sha256:b"), 8, "sha256:q");
  folder.write("x.safetensors", bytes);
  folder.write("y.safetensors", hashed_file({{"c", model::Dtype::kU8, {5}}}, 'y'));
  const auto report = check();
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_EQ(report.failures[0].file_index, 0u);
  EXPECT_EQ(report.failures[0].tensor, "");
  EXPECT_THAT(report.failures[0].message, HasSubstr("x.safetensors: tensor 'b' has no hash"));
}

}  // namespace
}  // namespace weightpress::job
