// Shards that are numbered by their names: model-00001-of-00003.safetensors. The names tell what is missing,
// whether there is an index or not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weightpress::model {

struct ShardName {
  std::string stem;  ///< "model"
  std::uint64_t number = 0;
  std::uint64_t count = 0;
  std::size_t digits = 0;

  /// The name of another shard of the same series.
  std::string sibling(std::uint64_t other_number) const;
};

/// Nothing if the name is not that of a numbered shard.
std::optional<ShardName> parse_shard_name(std::string_view file_name);

/// The first shard that a series among these files lacks; nothing if all are complete. Numbers run from 1 (or
/// 0) to the count.
std::optional<std::string> find_missing_shard(const std::vector<std::string>& file_names);

/// Two of these files that cannot belong to one model, since one is a shard of a series and the other is not
/// of that series; nothing if there are none.
std::optional<std::pair<std::string, std::string>> find_foreign_shard(
    const std::vector<std::string>& file_names);

}  // namespace weightpress::model
