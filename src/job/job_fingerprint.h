// What decides the bytes of an output: two runs with equal fingerprints make the same files, so one can go on
// with what the other has done.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <weightpress/compress.h>

#include "job/model_plan.h"
#include "model/checkpoint.h"

namespace weightpress::job {

/// One line of JSON. config, generation_config: files that are written as they are given here. Source files
/// count with name, size, time of modification and header; paths do not.
std::string make_fingerprint(const model::Checkpoint& checkpoint, const ModelPlan& plan,
                             const CompressOptions& options, const std::optional<std::string>& config,
                             const std::optional<std::string>& generation_config);

/// The same for Tile-ANS.
std::string make_tile_ans_fingerprint(const model::Checkpoint& checkpoint, const CompressOptions& options,
                                      const std::optional<std::string>& config,
                                      const std::optional<std::string>& generation_config);

/// A clause on what is different now; empty: nothing.
std::string what_changed(std::string_view past, std::string_view now);

}  // namespace weightpress::job
