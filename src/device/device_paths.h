// The GPUs of this machine as back ends: their stages, or why there are none. No CUDA header is needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/official_slab_kernel.h"
#include "device/slab_decoder.h"
#include "device/tile_ans_back_end.h"
#include "device/unit_pipeline.h"
#include "format/decode_stage.h"
#include "format/stages.h"

namespace weightpress::device {

/// A GPU with the kernels of this build loaded. Calls throw Error (CudaError) when it fails.
class GpuPath {
 public:
  virtual ~GpuPath() = default;

  /// Before the stages are used by a thread that used another GPU last.
  virtual void use() = 0;
  virtual df11::Df11Stages& stages() = 0;
  virtual df11::Df11DecodeStage& decode_stage() = 0;
  /// Segments that suit its kernels.
  virtual std::uint64_t segment_weights() const = 0;
  /// Whole units, with copies and kernels beside each other. Throws Error; kOutOfMemory if the longest unit
  /// does not fit.
  virtual std::unique_ptr<UnitPipeline> make_pipeline(const UnitPipelineSizes& sizes) = 0;
  /// ptx: the text of the known decode.ptx, which the driver compiles. Throws Error, e.g. where the driver is
  /// older than the text.
  virtual std::unique_ptr<OfficialSlabKernel> load_official_kernel(const std::string& ptx) = 0;
  /// Slabs of stored units, likewise. Throws Error.
  virtual std::unique_ptr<SlabDecoder> make_slab_decoder() = 0;
  /// Tile-ANS. device_bytes: of its memory, at most; 0: nine tenths of what is free. Throws Error.
  virtual std::unique_ptr<TileAnsBackEnd> make_tile_ans_back_end(std::uint64_t device_bytes) = 0;
  /// "cuda:0 (NVIDIA H200, cubin for sm_90)"
  virtual const std::string& name() const = 0;
};

struct GpuPaths {
  struct Found {
    std::string name;  ///< "cuda:0 (NVIDIA H200, cubin for sm_90)"; "cuda:0" before that is known
    std::unique_ptr<GpuPath> path;  ///< nullptr: it cannot be used
    std::string problem;            ///< then: a clause
  };
  std::vector<Found> found;  ///< all that the driver shows
  std::string why_none;      ///< a clause: no driver, or no kernels in this build; empty: there is a GPU
};

/// How many GPUs the driver shows. 0: why_none is a clause.
int count_gpus(std::string& why_none);
/// Takes a context on a GPU. number: below count_gpus(). Throws Error if it cannot be used.
std::unique_ptr<GpuPath> open_gpu(int number);

/// Takes a context on each GPU for as long as its path lives. GPUs that cannot be used are no errors.
GpuPaths find_gpu_paths();

}  // namespace weightpress::device
