// One safetensors file of the output: units and tensors that are kept, in any number.
//
// All is added first, then the file is laid out, and only then written: sizes and places are settled before
// its first byte, so that units can be encoded in any order, to their final places. A unit's shard in a
// folder layout, the file of everything else and the one file of a single-file layout are all made by it.
//
// A file that a stopped run has left is opened again: what follows from the plan (header, split_positions) is
// written anew, the rest can be checked against the hashes that the journal has of it.
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

#include "job/journal_records.h"
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

  const std::filesystem::path& path() const { return path_; }

  /// Creates the file, or opens the one that is there, and writes its header and split_positions.
  void create();
  /// Where the buffers of a unit go, by the number that add_unit() returned. Lives as long as the object.
  UnitSink& sink(std::size_t unit);
  /// What was written of them. Lives as long as the object.
  const UnitBytes& stored(std::size_t unit) const;
  /// All of the unit is written.
  void end_unit(std::size_t unit);
  /// What was written of an ended unit: its place, sizes and hash.
  WrittenRecord record_of(std::size_t unit) const;
  /// Whether what an earlier run wrote of a unit is there; then it has ended. Call after create().
  bool takes_over_unit(std::size_t unit, const WrittenRecord& record);

  /// A kept tensor or sibling that was copied.
  struct Copied {
    const std::string& name;
    std::uint64_t size_bytes;
    CopiedRecord record;
    bool taken_over;  ///< from an earlier run
  };
  /// Writes all kept tensors and siblings. past(name): the record of one which an earlier run has copied, or
  /// nullptr; it is not copied again if it is there. on_copied: called with each.
  void copy_tensors(const std::function<const CopiedRecord*(const std::string&)>& past,
                    const std::function<void(const Copied&)>& on_copied);
  /// Of ended units and of tensors that are copied, what is not hashed yet; 0 in a file without hashes.
  std::uint64_t unhashed_bytes() const { return unhashed_bytes_; }
  /// Reads these back and hashes them: of several files together, since few tensors leave threads without
  /// work.
  static void hash_written(std::span<TensorFile* const> files, int num_threads);
  /// Writes hashes, if need be. Call after the last write. Throws kVerificationFailed, as copy_tensors()
  /// does, if something reads back otherwise than it was written.
  void finish();
  /// The open file, for whoever makes it durable. Once it is created.
  const std::shared_ptr<model::File>& file() const { return file_; }

  /// What casts did to kept tensors and siblings, by earlier runs too.
  const model::CastCounts& cast_counts() const { return cast_counts_; }

 private:
  struct UnitPlace;  // a unit's buffers in the file
  struct Copy {
    std::size_t tensor;  // into the view
    std::size_t spec;
  };

  void lay_out_with_hashes(std::string_view metadata_json);
  CopiedRecord copy(const model::ModelTensor& tensor, std::uint64_t offset);
  /// Of what is in the file; nothing if the file ends before.
  std::optional<std::uint64_t> hash_stored(std::uint64_t offset, std::uint64_t bytes) const;
  void write_and_check(const void* data, std::uint64_t bytes, std::uint64_t offset, std::string_view what);
  bool holds(const void* data, std::uint64_t bytes, std::uint64_t offset) const;
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
  std::shared_ptr<model::File> file_;  // once it is created
  model::CastCounts cast_counts_;
};

}  // namespace weightpress::job
