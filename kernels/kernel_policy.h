// Every kernel's policy: what a kernel and the host code that launches it must agree on, once for both
// (names, sizes of blocks, budgets of registers and shared memory, parameters).
#pragma once

#include "kernels/compare_policy.h"
#include "kernels/df11_policy.h"
#include "kernels/small_copy_policy.h"
#include "kernels/tile_ans_policy.h"

namespace weightpress::device {

inline constexpr std::array kKernels = {
    describe<CompareKernel>(),        describe<HistogramKernel>(),     describe<SegmentBitsKernel>(),
    describe<SegmentOffsetsKernel>(), describe<EncodeKernel>(),        describe<ChunkStartsKernel>(),
    describe<DecodeKernel>(),         describe<SmallCopyKernel>(),     describe<TileAnsEncodeKernel>(),
    describe<TileAnsSizesKernel>(),   describe<TileAnsDecodeKernel>(), describe<TileAnsHistogramKernel>()};

}  // namespace weightpress::device
