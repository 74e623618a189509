// What compress() and estimate() have in common for Tile-ANS: which tensors are chosen, what becomes of each,
// the files, the report.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <weightpress/compress.h>

#include "job/journal.h"
#include "job/stage_times.h"
#include "job/tile_ans_device.h"
#include "job/tile_ans_journal.h"
#include "job/tile_ans_slab.h"
#include "job/tile_ans_tensor_compressor.h"
#include "model/checkpoint.h"
#include "model/safetensors_layout.h"

namespace weightpress::job {

class TileAnsCompression {
 public:
  TileAnsCompression(const TileAnsCompression&) = delete;
  TileAnsCompression& operator=(const TileAnsCompression&) = delete;

 protected:
  /// Opens the model and chooses tensors. options must outlive the object.
  explicit TileAnsCompression(const CompressOptions& options);
  ~TileAnsCompression() = default;

  /// One file of the output, as it will be.
  struct PlannedFile {
    struct Container {
      PlannedTileAns planned;
      std::size_t first_spec = 0;  ///< the buffers in order, then the header
    };
    struct Copy {
      std::size_t tensor = 0;  ///< into Checkpoint::tensors()
      std::size_t spec = 0;
    };
    std::string name;
    std::vector<model::TensorSpec> specs;
    std::vector<Container> containers;
    std::vector<Copy> copies;
    model::SafetensorsLayout layout;
    std::vector<std::uint64_t> offsets_bytes;  ///< by spec
  };

  /// Shares out memory and begins the report. writes: files are written and read back.
  void settle(bool writes);
  /// Reads and counts the tensors of one source file, and calls done(PlannedFile). Once more if what a GPU or
  /// an earlier run has made of them turns out wrong, without it.
  void for_file(std::size_t file_index, const std::function<void(const PlannedFile&)>& done);
  /// The text of the index; nothing if the source has none. Once all files are planned.
  std::optional<std::string> make_index() const;
  std::string make_record() const;
  void finish_report();

  void show_progress();
  TileAnsTensorCompressor::OnSlab on_slab();
  std::string tensor_name(std::size_t tensor) const { return checkpoint_.tensors()[tensor].name; }

  const CompressOptions& options_;
  const tile_ans::Settings settings_;
  const model::Checkpoint checkpoint_;
  const bool source_is_folder_;
  std::optional<std::string> config_, generation_config_;  // files that go beside the tensors
  std::optional<std::string> index_name_;
  std::vector<std::vector<std::size_t>> by_file_;   // tensors of each source file
  std::vector<bool> is_candidate_, is_compressed_;  // by tensor
  bool any_chosen_ = false;                         // by name and dtype, also what would not shrink
  /// Of one file of the output. A single file may be given another name.
  std::vector<std::string> file_names_;

  int num_threads_ = 1;
  std::unique_ptr<TileAnsDevice> device_;
  std::unique_ptr<TileAnsSlabMemory> memory_;  // the device's
  std::unique_ptr<TileAnsTensorCompressor> compressor_;

  TileAnsPastRun past_;
  Journal* journal_ = nullptr;  // of this run, if it keeps one

  std::vector<std::pair<std::string, std::string>> weight_map_;  // of the output, so far
  std::uint64_t output_tensor_bytes_ = 0;                        // of the output, so far
  StageTimes times_;
  CompressReport report_;
  CompressProgress progress_;

 private:
  DeviceChoice choice_;              // until settle()
  bool trusts_plans_ = true;         // of the earlier run
  bool has_unproven_plans_ = false;  // this file: of the earlier run, or of a GPU

  void choose_tensors();
  void plan_memory_use(bool writes);
  PlannedFile plan_file(std::size_t file_index);
  void add_to_totals(const PlannedFile& file);
  /// Whether a GPU or plans of an earlier run may be the cause; then there are none from now on.
  bool may_be_otherwise(const Error& error);
  std::optional<PlannedTileAns> plan_tensor(std::size_t tensor);
  void lay_out(PlannedFile& file, const std::string& metadata_json) const;
};

}  // namespace weightpress::job
