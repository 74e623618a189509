// The stages of format/stages.h and format/decode_stage.h on a GPU, the arguments in the host's memory: each
// call enqueues copies in, kernels and copies out on a stream of the object.
//
// Where the arguments are pinned memory nothing waits before the completion; other memory the driver copies
// during the call. A completion is waited for before the next call: that call would wait for the work, and
// the completion's status would be gone. The device needs room for a slab: 2 bytes a weight, 1 for its sign
// and mantissa, up to 4 for its code (about 0.4 mostly); decoding 2 or 4 more. It is kept for the next call.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "device/df11_launches.h"
#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "device/growing_device_buffer.h"
#include "format/decode_stage.h"
#include "format/stages.h"

namespace weightpress::device {

/// Segments of so many weights are a whole number of the encoder's tiles with the look into the next segment:
/// none is nearly empty. The bytes do not depend on it.
inline constexpr std::uint64_t kGpuSegmentWeights = 8 * EncodeKernel::kTileWeights - kGroupBits;

/// Throws Error (kDeviceFailed) on what a kernel cannot have written: the memory or the GPU is broken. what:
/// it.
[[noreturn]] void throw_nonsense(const std::string& what);

/// What the kernels' status words say; throws Error (kDeviceFailed) if no kernel can have written them.
df11::StageStatus encode_status(std::uint64_t status_word, std::uint64_t num_segments);
df11::DecodeStatus decode_status(const DecodeKernel::Result& result, std::uint64_t first_chunk,
                                 std::uint64_t num_chunks);

class GpuStages final : public df11::Df11Stages, public df11::Df11DecodeStage {
 public:
  /// Both must outlive the object. Throws CudaError.
  GpuStages(const Gpu& gpu, const GpuKernels& kernels);
  ~GpuStages() override;

  // Throw CudaError, and so do their completions; these also Error (kDeviceFailed) if what the GPU returns
  // cannot be.
  df11::Completion histogram(const df11::HistogramArguments& arguments) override;
  df11::Completion chunk_starts(const df11::ChunkStartsArguments& arguments) override;
  df11::Completion encode(const df11::EncodeArguments& arguments) override;
  df11::DecodeCompletion decode(const df11::DecodeArguments& arguments) override;

 private:
  /// What comes back besides the outputs, in pinned memory.
  struct Returned {
    std::uint64_t status = 0;
    std::uint64_t end_bit = 0;  ///< of the slab
    DecodeKernel::Result decoded;
    std::uint8_t border_byte = 0;
    std::uint8_t border_gaps[df11::kGapGroupBytes] = {};
  };
  struct SlabInput;

  /// A call: one that throws half way leaves nothing of it under way.
  template <class Enqueue>
  void call(Enqueue enqueue);
  void wait();
  Returned& returned() const { return *reinterpret_cast<Returned*>(returned_.data()); }
  template <class T>
  CUdeviceptr copy_in(GrowingDeviceBuffer& buffer, std::span<const T> values, std::uint64_t slack_bytes = 0);
  void enqueue_segment_offsets(const SlabInput& slab, const df11::StreamLayout* layout,
                               EncodeKernel::Parameters& parameters);

  const Gpu& gpu_;
  Df11Launches launches_;
  Stream stream_;
  PinnedBuffer returned_;
  bool is_under_way_ = false;

  GrowingDeviceBuffer d_weights_, d_histograms_, d_tables_, d_bits_, d_status_, d_sign_mantissa_,
      d_encoded_exponent_, d_gaps_, d_positions_, d_luts_, d_source_, d_result_;
};

}  // namespace weightpress::device
