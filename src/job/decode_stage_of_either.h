// The decode stage of a GPU, with the CPU's behind it: what the GPU says is compared with what it was given.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/slab_decoder.h"
#include "format/decode_stage.h"
#include "job/gpu_unit.h"

namespace weightpress::job {

/// What a decoding of these chunks reads and writes, on so many threads.
device::DecodeSums sums_of(const df11::DecodeArguments& chunks, int num_threads);

/// Slabs are decoded by the GPU until it fails: a call, or a result that is not what was given to it. Then
/// on_failure is called, once, and the CPU decodes that slab and all others. Where the GPU's memory does not
/// suffice for a slab beside others, it waits for them, and fewer are under way from then on. A fault that
/// the GPU tells counts once the CPU has found it too.
class DecodeStageOfEither final : public df11::Df11DecodeStage {
 public:
  /// Called when the GPU fails. What it throws goes through decode(), or the completion's wait().
  using OnFailure = std::function<void(const GpuFailure&)>;

  /// gpu and host must outlive the object.
  DecodeStageOfEither(device::SlabDecoder& gpu, df11::Df11DecodeStage& host, int num_threads,
                      OnFailure on_failure)
      : gpu_(gpu),
        host_(host),
        num_threads_(num_threads),
        on_failure_(std::move(on_failure)),
        most_lanes_(gpu.num_lanes()),
        is_taken_(static_cast<std::size_t>(gpu.num_lanes())) {}
  ~DecodeStageOfEither() override { abandon(); }

  df11::DecodeCompletion decode(const df11::DecodeArguments& arguments) override;
  int most_under_way() const override { return uses_gpu_ ? most_lanes_ : 1; }
  void abandon() noexcept override;

 private:
  df11::DecodeStatus decode_alone(const df11::DecodeArguments& arguments);
  df11::DecodeStatus finish(int lane, const df11::DecodeArguments& arguments);
  df11::DecodeStatus judge(const std::vector<device::DecodedPart>& parts,
                           const df11::DecodeArguments& arguments);
  void give_up(ErrorDetails error);

  device::SlabDecoder& gpu_;
  df11::Df11DecodeStage& host_;
  const int num_threads_;
  const OnFailure on_failure_;
  int most_lanes_;              // less than there are where the GPU has too little memory
  std::vector<bool> is_taken_;  // by lane
  bool uses_gpu_ = true;
};

}  // namespace weightpress::job
