// One safetensors file of the output: units and tensors that are kept, in any number.
//
// All is added first, then the file is laid out, and only then written: sizes and places are settled before
// its first byte, so that units can be encoded in any order, to their final places. A unit's shard in a
// folder layout, the file of everything else and the one file of a single-file layout are all made by it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "job/stored_unit.h"
#include "job/unit_compressor.h"
#include "model/bf16_cast.h"
#include "model/checkpoint.h"
#include "model/model_view.h"
#include "model/safetensors_layout.h"
#include "model/sha256.h"
#include "model/units.h"

namespace weightpress::job {

class TensorFile {
 public:
  /// What is given must outlive the object. read_back: whether all but the units' buffers, which their user
  /// reads back, are compared with what was to be written.
  TensorFile(const model::Checkpoint& checkpoint, const model::ModelView& view, std::filesystem::path path,
             int num_threads, bool read_back);
  ~TensorFile();

  /// A unit's five buffers, its split_positions and its siblings. Returns its number.
  std::size_t add_unit(const model::Unit& unit, const df11::UnitPlan& plan);
  /// Tensors that are kept: indices into the view.
  void add_tensors(const std::vector<std::size_t>& tensors);

  /// Settles every place. `metadata_json`: see plan_safetensors_layout(). Nothing can be added afterwards.
  /// with_hashes: __metadata__ also gets the hashes of model/tensor_hashes.h. Throws what errors of
  /// plan_safetensors_layout() say.
  void lay_out(std::string_view metadata_json, bool with_hashes);
  std::uint64_t file_bytes() const { return layout_.file_bytes; }

  /// Creates the file and writes its header and split_positions.
  void create();
  /// Where the buffers of a unit go, by the number that add_unit() returned. Lives as long as the object.
  UnitSink& sink(std::size_t unit);
  /// What was written of them. Lives as long as the object.
  const UnitBytes& stored(std::size_t unit) const;
  /// All of the unit is written.
  void end_unit(std::size_t unit);
  /// Writes all kept tensors and siblings. on_copied: called with the bytes of each.
  void copy_tensors(const std::function<void(std::uint64_t)>& on_copied);
  /// Of ended units and of tensors that are copied, what is not hashed yet; 0 in a file without hashes.
  std::uint64_t unhashed_bytes() const { return unhashed_bytes_; }
  /// Reads these back and hashes them: of several files together, since few tensors leave threads without
  /// work.
  static void hash_written(std::span<TensorFile* const> files, int num_threads);
  /// Writes hashes, if need be, and makes the file durable. Call after the last write. Throws
  /// kVerificationFailed, as copy_tensors() does, if something reads back otherwise than it was written.
  void finish();

  /// What casts did to kept tensors and siblings.
  const model::CastCounts& cast_counts() const { return cast_counts_; }

 private:
  struct UnitPlace;  // a unit's buffers in the file
  struct Copy {
    std::size_t tensor;  // into the view
    std::size_t spec;
  };

  void lay_out_with_hashes(std::string_view metadata_json);
  void copy(const model::ModelTensor& tensor, std::uint64_t offset);
  void write_and_check(const void* data, std::uint64_t bytes, std::uint64_t offset, std::string_view what);
  std::uint64_t size_bytes(std::size_t spec) const;
  void end_spec(std::size_t spec);
  /// In layout_.header only.
  void set_hash(std::uint64_t header_offset, const model::Sha256Digest& digest);

  const model::Checkpoint& checkpoint_;
  const model::ModelView& view_;
  const std::filesystem::path path_;
  const int num_threads_;
  const bool read_back_;

  std::vector<model::TensorSpec> specs_;
  std::vector<std::unique_ptr<UnitPlace>> units_;
  std::vector<Copy> copies_;
  model::SafetensorsLayout layout_;
  std::vector<std::uint64_t> offsets_;  // of each spec in the file, once it is laid out
  bool with_hashes_ = false;
  std::vector<std::uint64_t> hash_offsets_;  // with hashes: where that of each spec is in the header
  std::vector<std::size_t> unhashed_;        // specs that are written
  std::uint64_t unhashed_bytes_ = 0;
  std::optional<model::File> file_;  // once it is created
  model::CastCounts cast_counts_;
};

}  // namespace weightpress::job
