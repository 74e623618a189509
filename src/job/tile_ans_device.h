// The device of a Tile-ANS run: GPUs, with the CPU behind them. What a GPU says is compared with what it was
// given.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <weightpress/error.h>

#include "device/tile_ans_back_end.h"
#include "format/tile_ans_stages.h"
#include "host/tile_ans_stages.h"
#include "job/device_choice.h"
#include "job/slab_memory.h"

namespace weightpress::job {

/// Slabs go to the GPUs until one fails: a call, or a result that is not what was given to it. Then the CPU
/// does that slab and all others.
///   histogram: its counts are compared with sums of the elements.
///   sizes, encode: no result that could be wrong without being found out is compared here: who uses them
///   decodes the words with host_decode_stage() and compares how many there are; if that fails, give_up().
///   decode: what was decoded is compared with sums of the source and of what came back, raw lanes also with
///   their words, of which there must be as many as their symbols take. A fault that the GPU tells counts
///   once the CPU has found it too.
class TileAnsDevice final : public tile_ans::TileAnsStages, public tile_ans::TileAnsDecodeStage {
 public:
  /// With a sentence, when a GPU fails that was not asked for.
  using OnWarning = std::function<void(const std::string&)>;

  /// device_bytes: of each GPU's memory, at most; 0: nine tenths of what is free. Throws Error
  /// (kDeviceFailed) if a GPU that was asked for fails, as all calls do.
  TileAnsDevice(DeviceChoice choice, int num_threads, std::uint64_t device_bytes, OnWarning on_warning);

  tile_ans::Completion histogram(const tile_ans::HistogramArguments& arguments) override;
  tile_ans::Completion sizes(const tile_ans::EncodeArguments& arguments) override;
  tile_ans::Completion encode(const tile_ans::EncodeArguments& arguments) override;
  tile_ans::Completion decode(const tile_ans::DecodeArguments& arguments) override;
  tile_ans::TileAnsDecodeStage& host_decode_stage() { return host_decode_; }

  bool uses_gpu() const { return gpus_ != nullptr; }
  const std::string& name() const { return name_; }  ///< of what is used now
  const std::string& why() const { return why_; }    ///< a clause
  /// What decode() runs on: "host decoder", or the kernel's name.
  const char* decoder() const { return uses_gpu() ? "wp_tile_ans_decode" : "host decoder"; }
  /// For slabs: a GPU wants it pinned. Must not outlive the object.
  SlabMemory memory();
  /// From now on the CPU does everything. Precondition: uses_gpu().
  void give_up(const ErrorDetails& error);

 private:
  /// True if the GPU did it; otherwise there is none, or it has been given up.
  bool try_gpu(const std::function<const char*()>& call);
  bool decoded_right(const tile_ans::DecodeArguments& arguments) const;

  const DeviceChoice choice_;
  const int num_threads_;
  const OnWarning on_warning_;
  std::string name_, why_;
  host::HostTileAnsStages host_;
  host::HostTileAnsDecodeStage host_decode_;
  std::shared_ptr<device::TileAnsBackEnd> gpus_;      // nullptr: none, or it was given up
  std::shared_ptr<device::TileAnsBackEnd> given_up_;  // memory may be its
};

}  // namespace weightpress::job
