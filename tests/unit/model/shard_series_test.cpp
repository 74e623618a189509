#include "model/shard_series.h"

#include <gmock/gmock.h>

namespace weightpress::model {
namespace {

using Names = std::vector<std::string>;

TEST(ShardSeries, NamesAreTakenApart) {
  const auto shard = parse_shard_name("model.fp16-00002-of-00030.safetensors");
  ASSERT_TRUE(shard);
  EXPECT_EQ(shard->stem, "model.fp16");
  EXPECT_EQ(shard->number, 2u);
  EXPECT_EQ(shard->count, 30u);
  EXPECT_EQ(shard->sibling(7), "model.fp16-00007-of-00030.safetensors");
  for (const char* other : {"model.safetensors", "a-1-of-2.bin", "1-of-2.safetensors", "a-of-2.safetensors",
                            "a-1-of-.safetensors", "a-1-2.safetensors", "a-1-of-9999999999.safetensors", ""})
    EXPECT_FALSE(parse_shard_name(other)) << other;
}

TEST(ShardSeries, WhatIsMissingIsNamed) {
  EXPECT_EQ(find_missing_shard({"a-1-of-2.safetensors", "a-2-of-2.safetensors", "b.safetensors"}),
            std::nullopt);
  EXPECT_EQ(find_missing_shard({"a-0-of-2.safetensors", "a-1-of-2.safetensors"}), std::nullopt);  // from zero
  EXPECT_EQ(find_missing_shard({"a-01-of-03.safetensors", "a-03-of-03.safetensors"}),
            "a-02-of-03.safetensors");
  EXPECT_EQ(find_missing_shard({"a-1-of-1.safetensors", "b-2-of-2.safetensors"}), "b-1-of-2.safetensors");
  EXPECT_EQ(find_missing_shard({"a-1-of-999999999.safetensors"}), "a-2-of-999999999.safetensors");
  EXPECT_EQ(find_missing_shard({"a-1-of-0.safetensors"}), std::nullopt);
}

TEST(ShardSeries, FilesOfAnotherSeriesAreFound) {
  EXPECT_EQ(find_foreign_shard({"a-1-of-2.safetensors", "a-2-of-2.safetensors"}), std::nullopt);
  EXPECT_EQ(find_foreign_shard({"a.safetensors", "b.safetensors"}), std::nullopt);
  EXPECT_EQ(find_foreign_shard({"a-1-of-1.safetensors", "b.safetensors"}), std::nullopt);  // no series of one
  const auto other = find_foreign_shard({"a-1-of-2.safetensors", "a-2-of-2.safetensors", "b.safetensors"});
  ASSERT_TRUE(other);
  EXPECT_EQ(other->second, "b.safetensors");
  EXPECT_TRUE(find_foreign_shard({"a-1-of-2.safetensors", "a-1-of-3.safetensors"}));
}

}  // namespace
}  // namespace weightpress::model
