// The whole jobs of Tile-ANS, which the functions of include/weightpress turn to.
#pragma once

#include <weightpress/compress.h>
#include <weightpress/decompress.h>
#include <weightpress/inspect.h>
#include <weightpress/verify.h>

namespace weightpress::job {

/// Throws kUsage: what both formats' functions check of the options.
void check_tile_ans_options(const CompressOptions& options);

CompressReport compress_tile_ans(const CompressOptions& options);
SizeEstimate estimate_tile_ans(const CompressOptions& options);
DecompressReport decompress_tile_ans(const DecompressOptions& options);
VerifyReport verify_tile_ans(const VerifyOptions& options);
InspectReport inspect_tile_ans(const InspectOptions& options);

}  // namespace weightpress::job
