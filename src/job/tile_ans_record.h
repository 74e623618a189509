// weightpress.json of a Tile-ANS output. Nobody needs it to read the output, whose headers tell names, dtypes
// and shapes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <weightpress/compress.h>

#include "model/checkpoint.h"

namespace weightpress::job {

/// is_compressed: by tensor of the checkpoint. Equal runs give equal texts: it holds no times and no paths.
std::string make_tile_ans_record(const model::Checkpoint& checkpoint, const CompressOptions& options,
                                 const std::vector<bool>& is_compressed);

/// Whether the file is such a record. Reads its beginning only.
bool is_tile_ans_record(const std::filesystem::path& path);

}  // namespace weightpress::job
