// A unit's file in a folder layout: `<unit>.safetensors` with split_positions, the siblings and the five
// buffers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "job/unit_compressor.h"
#include "model/checkpoint.h"
#include "model/safetensors_layout.h"
#include "model/units.h"

namespace weightpress::job {

/// The unit's tensors in the checkpoint, concatenated.
class CheckpointSource final : public WeightSource {
 public:
  CheckpointSource(const model::Checkpoint& checkpoint, const model::Unit& unit, int num_threads);

  std::uint64_t num_weights() const override { return begins_.back(); }
  void read(std::uint64_t first, std::span<std::uint16_t> weights) override;

  /// Name of the tensor that weight `index` of the unit belongs to, and its index there.
  std::pair<std::string, std::uint64_t> locate(std::uint64_t index) const;

 private:
  /// Which of the unit's tensors holds weight `index`.
  std::size_t tensor_of(std::uint64_t index) const;

  const model::Checkpoint& checkpoint_;
  const model::Unit& unit_;
  int num_threads_;
  std::vector<std::uint64_t> begins_;  // [tensors + 1] first weight of each, then the number of weights
};

/// Writes the shard. The file is laid out and its header written once the sizes are known (begin()); the
/// pieces go to their final place.
class UnitShard final : public UnitSink {
 public:
  UnitShard(const model::Checkpoint& checkpoint, const model::Unit& unit, std::filesystem::path path,
            int num_threads);

  void begin(const df11::UnitPlan& plan) override;
  void write(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<const std::uint8_t> bytes) override;
  /// Makes the file durable. Call after the last write.
  void finish();

  std::uint64_t file_bytes() const { return layout_.file_bytes; }

 private:
  static constexpr std::size_t kNumBuffers = 5;

  const model::Checkpoint& checkpoint_;
  const model::Unit& unit_;
  std::filesystem::path path_;
  int num_threads_;
  model::SafetensorsLayout layout_;
  std::vector<model::File> file_;  // one, once it is created
  std::uint64_t buffer_offsets_[kNumBuffers] = {};
};

/// Copies a tensor's bytes to `offset` of `file`.
void copy_tensor(const model::Checkpoint& checkpoint, const model::SourceTensor& tensor, model::File& file,
                 std::uint64_t offset);

}  // namespace weightpress::job
