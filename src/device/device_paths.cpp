#include "device/device_paths.h"

#include <utility>

#include "device/driver/cuda_driver.h"
#include "device/driver/gpu.h"
#include "device/embedded_kernels.h"
#include "device/gpu_kernels.h"
#include "device/gpu_official_slab_kernel.h"
#include "device/gpu_slab_decoder.h"
#include "device/gpu_stages.h"
#include "device/gpu_tile_ans_stages.h"
#include "device/gpu_unit_pipeline.h"

namespace weightpress::device {
namespace {

std::string cuda_name(int number) {
  return "cuda:" + std::to_string(number);
}

class OpenGpu final : public GpuPath {
 public:
  OpenGpu(const CudaDriver& driver, int number)
      : gpu_(driver, number),
        kernels_(gpu_),
        stages_(gpu_, kernels_),
        name_(cuda_name(number) + " (" + gpu_.info().name + ", " + kernels_.image() + ")") {}
  /// What follows is given back by this thread, which may have used another GPU since.
  ~OpenGpu() override { try_use(); }

  void use() override { gpu_.use(); }
  df11::Df11Stages& stages() override { return stages_; }
  df11::Df11DecodeStage& decode_stage() override { return stages_; }
  std::uint64_t segment_weights() const override { return kGpuSegmentWeights; }
  std::unique_ptr<UnitPipeline> make_pipeline(const UnitPipelineSizes& sizes) override {
    gpu_.use();
    return std::make_unique<GpuUnitPipeline>(gpu_, kernels_, sizes);
  }
  std::unique_ptr<OfficialSlabKernel> load_official_kernel(const std::string& ptx) override {
    gpu_.use();
    return std::make_unique<GpuOfficialSlabKernel>(gpu_, ptx);
  }
  std::unique_ptr<SlabDecoder> make_slab_decoder() override {
    gpu_.use();
    return std::make_unique<GpuSlabDecoder>(gpu_, kernels_);
  }
  std::unique_ptr<TileAnsBackEnd> make_tile_ans_back_end(std::uint64_t device_bytes) override {
    gpu_.use();
    return std::make_unique<GpuTileAnsStages>(gpu_, kernels_, device_bytes);
  }
  const std::string& name() const override { return name_; }

 private:
  /// A broken GPU takes nothing back.
  bool try_use() const noexcept {
    try {
      gpu_.use();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  const Gpu gpu_;
  const GpuKernels kernels_;
  GpuStages stages_;
  const std::string name_;
};

/// nullptr: why_none is a clause.
const CudaDriver* usable_driver(std::string& why_none) {
  if (!embedded_images().empty()) return CudaDriver::find(&why_none);
  why_none = "the kernels are " + std::string(why_no_kernels());
  return nullptr;
}

}  // namespace

int count_gpus(std::string& why_none) {
  const CudaDriver* const driver = usable_driver(why_none);
  return driver == nullptr ? 0 : driver->num_devices();
}

std::unique_ptr<GpuPath> open_gpu(int number) {
  std::string why_none;
  const CudaDriver* const driver = usable_driver(why_none);
  if (driver == nullptr) throw Error(ErrorCode::kDeviceFailed, why_none);
  return std::make_unique<OpenGpu>(*driver, number);
}

GpuPaths find_gpu_paths() {
  GpuPaths paths;
  const CudaDriver* const driver = usable_driver(paths.why_none);
  if (driver == nullptr) return paths;
  for (int number = 0; number < driver->num_devices(); ++number) {
    GpuPaths::Found& found = paths.found.emplace_back();
    found.name = cuda_name(number);
    try {
      found.path = std::make_unique<OpenGpu>(*driver, number);
      found.name = found.path->name();
    } catch (const Error& error) {
      found.problem = error.what();
    }
  }
  return paths;
}

}  // namespace weightpress::device
