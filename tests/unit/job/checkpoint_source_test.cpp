// A unit's weights out of a checkpoint: the same words, hash and cast counts in whatever slabs, by however
// many threads.
#include "job/checkpoint_source.h"

#include <cstring>
#include <memory>

#include <gtest/gtest.h>
#include <xxhash.h>

#include "host/host_stages.h"
#include "job/unit_memory.h"
#include "model/model_test_support.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

using Words = std::vector<std::uint16_t>;

/// A unit of tensors of odd sizes, of BF16 and F32, one of them used twice.
struct CheckpointSourceTest : ::testing::Test {
  CheckpointSourceTest() {
    const std::vector<model::TensorSpec> specs = {{"a", model::Dtype::kBf16, {300'001}},
                                                  {"b", model::Dtype::kF32, {700'003}},
                                                  {"c", model::Dtype::kBf16, {1}},
                                                  {"d", model::Dtype::kBf16, {262'144}},
                                                  {"none", model::Dtype::kBf16, {0}}};
    const auto layout = model::plan_safetensors_layout(specs, {}).value();
    std::string file = layout.header;
    file.resize(layout.file_bytes);
    testing::Random random(3);
    for (const model::TensorPlacement& tensor : layout.tensors) {
      const bool is_f32 = specs[tensor.spec_index].dtype == model::Dtype::kF32;
      for (std::uint64_t done = 0; done < tensor.size_bytes; done += is_f32 ? 4 : 2) {
        if (is_f32) {
          const auto value = static_cast<float>(random.uniform() - 0.5);
          std::memcpy(file.data() + tensor.offset_bytes + done, &value, 4);
        } else {
          const std::uint16_t word =
              testing::with_exponent(random, 100 + static_cast<std::uint32_t>(random.below(20)));
          std::memcpy(file.data() + tensor.offset_bytes + done, &word, 2);
        }
      }
    }
    checkpoint =
        std::make_unique<model::Checkpoint>(model::Checkpoint::open(folder.write("model.safetensors", file)));
    for (const char* name : {"a", "b", "none", "c", "d", "b"}) {
      const model::SourceTensor* tensor = checkpoint->find(name);
      const auto index = static_cast<std::size_t>(tensor - checkpoint->tensors().data());
      const bool again = std::string_view(name) == "b" && view.tensors.size() > 1;
      unit.tensors.push_back(view.tensors.size());
      unit.num_weights += tensor->num_elements();
      view.tensors.push_back({name, index, model::Dtype::kBf16, tensor->num_elements(), again});
    }
    for (const std::size_t tensor : unit.tensors) {
      Words words(view.tensors[tensor].num_elements);
      const auto counts = read_elements(*checkpoint, view.tensors[tensor], 0, words.size(),
                                        reinterpret_cast<std::uint8_t*>(words.data()));
      if (!view.tensors[tensor].is_tied_copy) casts += counts;
      parts.push_back(words);
      weights.insert(weights.end(), words.begin(), words.end());
    }
  }

  CheckpointSource make_source(int threads, bool hashes = true) const {
    return {*checkpoint, view, unit, threads, hashes};
  }

  /// By the words of the header files: blocks of tensors, tensors of the unit.
  std::uint64_t plain_hash() const {
    std::vector<XXH64_hash_t> tensors;
    for (const Words& words : parts) {
      std::vector<XXH64_hash_t> blocks;
      const auto* bytes = reinterpret_cast<const char*>(words.data());
      for (std::uint64_t begin = 0; begin < 2 * words.size(); begin += 512 << 10)
        blocks.push_back(
            XXH3_64bits(bytes + begin, std::min<std::uint64_t>(512 << 10, 2 * words.size() - begin)));
      tensors.push_back(XXH3_64bits(blocks.data(), 8 * blocks.size()));
    }
    return XXH3_64bits(tensors.data(), 8 * tensors.size());
  }

  model::TempFolder folder;
  std::unique_ptr<model::Checkpoint> checkpoint;
  model::ModelView view;
  model::Unit unit;
  Words weights;
  std::vector<Words> parts;  // of each tensor
  model::CastCounts casts;
};

TEST_F(CheckpointSourceTest, HashAndCountsDoNotDependOnSlabsOrThreads) {
  testing::Random random(4);
  EXPECT_GT(casts.changed, 600'000u);
  for (int round = 0; round < 40; ++round) {
    CheckpointSource source = make_source(1 + static_cast<int>(random.below(4)));
    ASSERT_EQ(source.num_weights(), weights.size());
    Words words(weights.size());
    // Whole, in slabs of one size, of any sizes.
    const std::uint64_t slab = round == 0 ? words.size() : 1'000 + random.below(400'000);
    for (std::uint64_t done = 0; done < words.size();) {
      std::uint64_t count = std::min<std::uint64_t>(slab, words.size() - done);
      if (round % 2 == 0 && round > 0) count = 1 + random.below(count);
      source.read(done, std::span(words).subspan(done, count));
      if (random.below(4) == 0) {  // looks back count for nothing
        Words other(1);
        source.read(random.below(done + 1), other);
      }
      done += count;
    }
    ASSERT_EQ(words, weights) << "round " << round;
    EXPECT_EQ(source.source_hash(), plain_hash()) << "round " << round;
    EXPECT_EQ(source.cast_counts(), casts) << "round " << round;
    source.read(0, words);
    EXPECT_EQ(source.source_hash(), plain_hash());
    EXPECT_EQ(source.cast_counts(), casts);
  }
}

TEST_F(CheckpointSourceTest, HashDoesNotDependOnHowTheUnitIsCompressed) {
  for (const bool holds : {false, true}) {
    for (const std::uint64_t slab : {65'536u, 4 * 65'536u, 64u << 20}) {
      for (const bool plans : {false, true}) {
        CheckpointSource source = make_source(2);
        SlabBuffers buffers;
        host::HostStages stages(2);
        UnitCompressorOptions options;
        options.slab_weights = slab;
        UnitCompressor compressor("unit", source, stages, buffers, options);
        Words memory(weights.size());
        MemorySource in_memory(weights);
        UnitCompressor other("unit", in_memory, stages, buffers, options);
        if (holds) compressor.hold(memory);
        const df11::UnitPlan plan = plans ? compressor.plan().value() : other.plan().value();
        if (plans) {
          EXPECT_EQ(source.source_hash(), plain_hash());
        }
        MemorySink sink;
        sink.begin(plan);
        ASSERT_TRUE(compressor.encode(plan, sink).has_value());
        EXPECT_EQ(source.source_hash(), plain_hash());
        EXPECT_EQ(source.cast_counts(), casts);
        EXPECT_TRUE(!holds || memory == weights);
      }
    }
  }
}

TEST_F(CheckpointSourceTest, WithoutHashesNothingIsHashed) {
  CheckpointSource source = make_source(2, false);
  Words words(weights.size());
  source.read(0, words);
  EXPECT_EQ(words, weights);
  EXPECT_EQ(source.source_hash(), xxh3_of({}));
}

TEST_F(CheckpointSourceTest, LocatesEveryWeight) {
  const CheckpointSource source = make_source(1);
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].empty()) {
      using Place = std::pair<std::size_t, std::uint64_t>;
      EXPECT_EQ(source.locate(first), Place(view.tensors[i].source_index, 0));
      EXPECT_EQ(source.locate(first + parts[i].size() - 1),
                Place(view.tensors[i].source_index, parts[i].size() - 1));
    }
    first += parts[i].size();
  }
}

}  // namespace
}  // namespace weightpress::job
