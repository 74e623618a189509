// The stages of format/tile_ans_stages.h on a GPU, the arguments in the host's memory: each call enqueues
// copies in, kernels and copies out on a stream of the object.
//
// Where the arguments are pinned memory nothing waits before the completion; other memory the driver copies
// during the call. How many words there are, encode() learns at its completion, which then copies them. A
// completion is waited for before the next call: that call would wait for the work, and the completion's
// status would be gone. The device needs room for a slab: its elements; encoding, what its lanes can take in
// the worst case (lane_words_capacity()), and 128 bytes of states and 4 of sizes a tile and lane; decoding,
// what is stored and, where they are wanted, elements and source. It is kept for the next call, but for what
// would be too much with that call's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "device/growing_device_buffer.h"
#include "device/tile_ans_back_end.h"
#include "device/tile_ans_launches.h"
#include "format/tile_ans_stages.h"

namespace weightpress::device {

/// What a status word of the kernels says of these tiles; throws Error (kDeviceFailed) if none of them can
/// have written it.
tile_ans::StageStatus tile_ans_encode_status(std::uint64_t status_word, const tile_ans::TileRange& tiles,
                                             std::uint32_t num_lanes);
tile_ans::StageStatus tile_ans_decode_status(std::uint64_t status_word, const tile_ans::TileRange& tiles,
                                             std::uint32_t num_lanes);

class GpuTileAnsStages final : public TileAnsBackEnd {
 public:
  /// Both must outlive the object. device_bytes: of the GPU's memory, at most; 0: nine tenths of what is
  /// free. Throws CudaError.
  GpuTileAnsStages(const Gpu& gpu, const GpuKernels& kernels, std::uint64_t device_bytes = 0);
  ~GpuTileAnsStages() override;

  // Throw CudaError, and so do their completions; these also Error (kDeviceFailed) if what the GPU returns
  // cannot be. Error (kOutOfMemory) if a slab takes more than device_bytes.
  tile_ans::Completion histogram(const tile_ans::HistogramArguments& arguments) override;
  tile_ans::Completion sizes(const tile_ans::EncodeArguments& arguments) override;
  tile_ans::Completion encode(const tile_ans::EncodeArguments& arguments) override;
  tile_ans::Completion decode(const tile_ans::DecodeArguments& arguments) override;
  std::uint64_t decoded_sum() const override { return decoded_sum_; }
  std::shared_ptr<void> pinned(std::uint64_t bytes) override;

 private:
  /// What comes back besides the outputs, in pinned memory.
  struct Returned {
    std::uint64_t status = 0, sum = 0;
    std::uint64_t totals[tile_ans::kMaxLanes] = {};
    tile_ans::Histogram histograms[tile_ans::kMaxLanes] = {};
  };
  /// Device memory of a lane.
  struct LaneBuffers {
    GrowingDeviceBuffer d_stream_words, d_words, d_states, d_offsets;
  };

  struct Need {
    GrowingDeviceBuffer* buffer = nullptr;
    std::uint64_t bytes = 0;
  };

  std::vector<GrowingDeviceBuffer*> all_buffers();
  /// Makes these buffers as large as is needed, and what is held in all no more than may be used.
  void make_room(const std::vector<Need>& needs);
  /// A call: one that throws half way leaves nothing of it under way.
  template <class Enqueue>
  void call(Enqueue enqueue);
  void wait();
  Returned& returned() const { return *reinterpret_cast<Returned*>(returned_.data()); }
  template <class T>
  CUdeviceptr copy_in(GrowingDeviceBuffer& buffer, std::span<const T> values);
  CUdeviceptr new_status();
  /// The parameters that sizes and encoding share; rooms and outputs of words are left out. more_needs: of
  /// encoding.
  TileAnsEncodeKernel::Parameters prepare_encoding(const tile_ans::EncodeArguments& arguments,
                                                   const std::vector<Need>& more_needs);

  const Gpu& gpu_;
  const std::uint64_t device_bytes_;
  TileAnsLaunches launches_;
  Stream stream_;
  PinnedBuffer returned_;
  bool is_under_way_ = false;
  std::uint64_t decoded_sum_ = 0;

  GrowingDeviceBuffer d_elements_, d_source_, d_counts_, d_tables_, d_chain_, d_totals_, d_status_, d_sum_;
  std::array<LaneBuffers, tile_ans::kMaxLanes> lanes_;
};

}  // namespace weightpress::device
