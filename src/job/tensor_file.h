// One safetensors file of the output: units and tensors that are kept, in any number.
//
// All is added first, then the file is laid out, and only then written: sizes and places are settled before
// its first byte, so that units can be encoded in any order, to their final places. A unit's shard in a
// folder layout, the file of everything else and the one file of a single-file layout are all made by it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "job/unit_compressor.h"
#include "model/bf16_cast.h"
#include "model/checkpoint.h"
#include "model/model_view.h"
#include "model/safetensors_layout.h"
#include "model/units.h"

namespace weightpress::job {

class TensorFile {
 public:
  /// What is given must outlive the object.
  TensorFile(const model::Checkpoint& checkpoint, const model::ModelView& view, std::filesystem::path path,
             int num_threads);
  ~TensorFile();

  /// A unit's five buffers, its split_positions and its siblings. Returns its number.
  std::size_t add_unit(const model::Unit& unit, const df11::UnitPlan& plan);
  /// Tensors that are kept: indices into the view.
  void add_tensors(const std::vector<std::size_t>& tensors);

  /// Settles every place. `format_metadata`: see plan_safetensors_layout(). Nothing can be added afterwards.
  /// Throws what that function's errors say.
  void lay_out(const std::optional<std::string>& format_metadata);
  std::uint64_t file_bytes() const { return layout_.file_bytes; }

  /// Creates the file and writes its header and split_positions.
  void create();
  /// Where the buffers of a unit go, by the number that add_unit() returned. Lives as long as the object.
  UnitSink& sink(std::size_t unit);
  /// Writes all kept tensors and siblings. on_copied: called with the bytes of each.
  void copy_tensors(const std::function<void(std::uint64_t)>& on_copied);
  /// Makes the file durable. Call after the last write.
  void finish();

  /// What casts did to kept tensors and siblings.
  const model::CastCounts& cast_counts() const { return cast_counts_; }

 private:
  struct UnitPlace;  // a unit's buffers in the file
  struct Copy {
    std::size_t tensor;  // into the view
    std::size_t spec;
  };

  void add_copy(std::size_t tensor);
  void copy(const model::ModelTensor& tensor, std::uint64_t offset);

  const model::Checkpoint& checkpoint_;
  const model::ModelView& view_;
  const std::filesystem::path path_;
  const int num_threads_;

  std::vector<model::TensorSpec> specs_;
  std::vector<std::unique_ptr<UnitPlace>> units_;
  std::vector<Copy> copies_;
  model::SafetensorsLayout layout_;
  std::vector<std::uint64_t> offsets_;  // of each spec in the file, once it is laid out
  std::optional<model::File> file_;     // once it is created
  model::CastCounts cast_counts_;
};

}  // namespace weightpress::job
